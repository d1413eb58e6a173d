"""Memory that predictions at a million rows take, of a thousand draws: written to a store, and summed up."""
