"""The paper's studies: each one computes data, draws figures and writes a report."""
