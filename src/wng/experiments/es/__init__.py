"""The evolution-strategies study on the wall tasks."""
