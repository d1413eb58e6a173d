"""Rows drawn at random: estimates of a change of energy, the noise that they have, the proposals that go with them."""
