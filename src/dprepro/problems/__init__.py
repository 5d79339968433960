"""Problems: a loss, data, and the exact quantity that a theorem bounds."""
