"""What cannot fit is refused in a sentence, before it is allocated or the system ends us."""

import os


def check_memory(what: str, numbers: float) -> None:
    """Raise if so many numbers of 32 bits are more than this machine could hold.

    Args:
      what: takes the room, in words that name the settings to lower.
      numbers: as few as are certain: a limit must not forbid what would work.
    """
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if 4 * numbers > have:
        raise ValueError(
            f"{what} would take at least {4 * numbers / 1e9:,.0f} GB of memory, and this machine "
            f"has {have / 1e9:,.0f} GB: lower it."
        )
