-- The newest step and state of a flow over a session.
select g.no, g.step, g.state::text as state
  from pgmem.stages g
 where g.session_id = %(session_id)s
   and g.flow = %(flow)s
 order by g.no desc
 limit 1
