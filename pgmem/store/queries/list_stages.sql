-- A page of what the flows over a session were left in, by flow and in order.
select g.flow, g.no, g.step, g.entered, g.state::text as state, g.created_at
  from pgmem.stages g
 where g.session_id = %(session_id)s
   and (g.flow, g.no) > (%(after_flow)s, %(after)s)
 order by g.flow, g.no
 limit %(most)s
