"""The command `paiq`: one thin module per verb."""
