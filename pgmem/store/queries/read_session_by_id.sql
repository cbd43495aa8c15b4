-- The session of a number, of whatever tenant.
select s.session_id, s.key, s.goal, s.metadata::text as metadata, s.created_at
  from pgmem.sessions s
 where s.session_id = %(session_id)s
