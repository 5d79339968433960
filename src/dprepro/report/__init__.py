"""The report: all results as one page of HTML that needs nothing but itself."""
