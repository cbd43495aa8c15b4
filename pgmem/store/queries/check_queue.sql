-- Which release's queue is there, if any, and whether this role may use it.
select obj_description(n.oid, 'pg_namespace') as made_by,
       has_schema_privilege(n.oid, 'usage')
           and (select bool_and(has_table_privilege(t.oid, 'select') and has_table_privilege(t.oid, 'insert')
                                and has_table_privilege(t.oid, 'update') and has_table_privilege(t.oid, 'delete'))
                  from pg_class t
                 where t.relnamespace = n.oid and t.relkind = 'r')
           and (select bool_and(has_sequence_privilege(s.oid, 'usage'))
                  from pg_class s
                 where s.relnamespace = n.oid and s.relkind = 'S') as usable
  from pg_namespace n
  join pg_class c on c.relnamespace = n.oid and c.relname = 'procrastinate_jobs'
 where n.nspname = %(schema)s
