-- A page of a tenant's sessions in the order of their keys.
select s.session_id, s.key, s.goal, s.metadata::text as metadata, s.created_at
  from pgmem.sessions s
 where s.tenant = %(tenant)s
   and s.key > %(after)s
   and s.key >= %(prefix)s
   and starts_with(s.key, %(prefix)s)
   and (%(end)s::text is null or s.key < %(end)s)
 order by s.key
 limit %(most)s
