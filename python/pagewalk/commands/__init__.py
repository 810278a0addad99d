"""One module per subcommand, with its arguments, its help and its work."""
