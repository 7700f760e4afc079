"""The engine core: compiling, admitting requests whose grammar is not there yet, masks on the CPU, errors."""
