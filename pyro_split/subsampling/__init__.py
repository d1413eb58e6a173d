"""Rows drawn at random: estimates of a change of energy, their noise, and the proposals that use them."""
