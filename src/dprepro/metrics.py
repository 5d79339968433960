"""The names of what is measured of a run; bounds and experiments speak of the same things by them."""

from __future__ import annotations

GRADIENT_NORM = "gradient norm"
SQUARED_GRADIENT = "squared gradient norm"
# The norm of the shortest element of the Goldstein subdifferential, an upper bound on it where it is not known exactly.
GOLDSTEIN = "Goldstein stationarity"
# Each value is found by a minimisation, which ends in `NotConverged` where its accuracy is not reached.
NEAR_STATIONARITY = "near stationarity"
# What is observed beside them: 1 if an algorithm that stops by a test of its own did so, 0 if it went to the end.
RETURNED = "returned a leaf by its estimate"
# What is said of a run for which that is 0.
NO_LEAF = "found no leaf to return"
