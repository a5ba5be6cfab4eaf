"""Evolution strategies: ask/tell, policies, evaluators, the methods table."""
