-- The newest step and state of a flow over a session, and how old that row is.
select g.no, g.step, g.entered, g.state::text as state,
       extract(epoch from statement_timestamp() - g.created_at)::float8 as age_seconds
  from pgmem.stages g
 where g.session_id = %(session_id)s
   and g.flow = %(flow)s
 order by g.no desc
 limit 1
