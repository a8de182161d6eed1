"""How a value is made to fit a schema: the schema as shapes, values that are changed, values that are made up."""
