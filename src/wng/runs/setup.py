"""How JAX is set up before it computes anything."""

from wng.runs.cache import keep_compiled

own_process = False  # whether this is a command or a worker of wng, and not the user's program


def set_up_jax() -> None:
    """Keep compiled programs; in a process of our own, also run small programs without a thread."""
    import jax

    keep_compiled()
    if own_process:
        # The policy acts on a few states at a time: handing each to a thread doubles its time.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
