-- The version that the migrations brought the schema to.
select version_num
  from pgmem.schema_version
