"""Policy gradients: proximity × geometry × step, one compiled update, a table of methods."""
