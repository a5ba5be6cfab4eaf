"""The policy-gradient study (Figure `fig:pg_exps`, Table `table:pg_results`)."""
