-- What a role and a server must be before memory is trusted to them.
select current_setting('server_version_num')::integer as version,
       current_setting('fsync') as fsync,
       current_setting('synchronous_commit') as synchronous_commit,
       current_setting('default_transaction_isolation') as isolation,
       pg_is_in_recovery() as standby,
       r.rolname as role,
       r.rolsuper as superuser,
       r.rolbypassrls as bypass_rls,
       coalesce(pg_has_role(r.oid, c.relowner, 'usage'), false) as owner,
       c.oid is not null as installed,
       coalesce(has_schema_privilege(r.oid, n.oid, 'usage')
                    and (select bool_and(has_table_privilege(r.oid, t.oid, 'insert'))
                           from pg_class t
                          where t.relnamespace = n.oid and t.relkind = 'r' and t.relname <> 'schema_version'), false)
           as may_write
  from pg_roles r
  left join pg_namespace n on n.nspname = %(schema)s
  left join pg_class c on c.relnamespace = n.oid and c.relname = 'turns'
 where r.rolname = current_user
