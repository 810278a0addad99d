"""One module a subcommand: its arguments, its help, and what it does."""
