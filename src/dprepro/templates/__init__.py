"""What `dprepro new` writes: whole files that work as they stand, with names to be replaced (see `dprepro.new`)."""
