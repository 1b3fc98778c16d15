"""The Model Context Protocol over our surfaces, without HTTP."""
