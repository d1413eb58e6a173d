"""How many of the package's files one iteration enters, and whether calls climb."""
