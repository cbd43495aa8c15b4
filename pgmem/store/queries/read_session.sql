-- The session of a key, with the branch that its main tree is on.
select s.session_id, s.key, s.goal, s.metadata::text as metadata, s.created_at, t.branch
  from pgmem.sessions s
  left join pgmem.trees t on t.session_id = s.session_id and t.namespace = 'main'
 where s.tenant = %(tenant)s
   and s.key = %(key)s
