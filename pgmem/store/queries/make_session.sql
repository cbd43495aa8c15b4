-- Adds the session and its main tree unless the key is taken. No row: it is taken.
with session as (
    insert into pgmem.sessions (tenant, key, goal, metadata)
    values (%(tenant)s, %(key)s, %(goal)s, %(metadata)s::json)
        on conflict on constraint sessions_tenant_key_unique do nothing
    returning session_id, key, goal, metadata::text as metadata, created_at
),
tree as (
    insert into pgmem.trees (session_id, namespace, chain)
    select session_id, 'main', sha256(int8send(session_id) || convert_to('main', 'UTF8'))
      from session
)
select session_id, key, goal, metadata, created_at, 0::bigint as branch
  from session
