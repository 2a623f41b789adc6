"""All layers in the same small network under the same budget: our own Tables 3, 4 and 8 to 11."""
