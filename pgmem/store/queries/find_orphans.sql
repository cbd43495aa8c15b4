-- A page of the trees that were last touched a while ago and are due by their stored settings, or have a node of a compaction that
-- nobody judged; "due" if no job was queued for them since, or taken out: whoever was to queue it ended before it did. Turns that a fail
-- made raw again, and that a job left raw, are to stay so.
with page as materialized (
    select t.session_id, t.namespace, t.last_no, p.no as policy, p.retry, f.touched_at,
           exists (
               select
                 from pgmem.branches b
                where b.session_id = t.session_id and b.namespace = t.namespace and b.no = t.last_no and b.cause = 'reopen'
           ) as reopened
      from pgmem.trees t
     cross join lateral (
            select p.no, case when p.policy ->> 'threshold' ~ '^[0-9]{1,9}$' then (p.policy ->> 'threshold')::bigint end as threshold,
                   p.policy ->> 'retry' is distinct from 'false' as retry
              from pgmem.policies p
             where p.session_id = t.session_id and p.namespace = t.namespace
             order by p.no desc
             limit 1
           ) p
     cross join lateral (
            select max(l.created_at) as touched_at
              from pgmem.log l
             where l.session_id = t.session_id and l.namespace = t.namespace and l.no = t.last_no
           ) f
     where (t.session_id, t.namespace) > (%(after_session)s, %(after_namespace)s)
       and p.threshold > 0
       and f.touched_at < now() - make_interval(secs => %(quiet_seconds)s)
       and (
               (select count(*)
                  from (select
                          from pgmem.turns u
                         where u.session_id = t.session_id and u.namespace = t.namespace and u.no > t.boundary
                           and not exists (
                                   select
                                     from pgmem.branches b
                                    where b.session_id = u.session_id and b.namespace = u.namespace
                                      and b.left_to >= u.no and b.left_from <= u.no
                               )
                         order by u.no
                         limit p.threshold
                       ) u) >= p.threshold
            or exists (
                   select
                     from pgmem.nodes n
                    where n.session_id = t.session_id and n.namespace = t.namespace and n.no = t.head
                      and n.strategy = 'llm' and n.kind = %(kind)s
                      and not exists (
                              select from pgmem.verdicts v
                               where v.session_id = n.session_id and v.namespace = n.namespace and v.node = n.no
                          )
               )
           )
     order by t.session_id, t.namespace
     limit %(most)s
),
queued as (
    select o.session_id, o.namespace,
           bool_or(j.status in ('todo', 'doing')) as waits,
           max(case when j.args ->> 'last_no' ~ '^[0-9]{1,18}$' then (j.args ->> 'last_no')::bigint end) as queued_no,
           max(e.at) filter (where e.type = 'cancelled') as cancelled_at,
           max(e.at) filter (where e.type = 'succeeded') as done_at
      from page o
      join pgmem_queue.procrastinate_jobs j on j.queueing_lock = o.session_id || '/' || o.namespace
      join pgmem_queue.procrastinate_events e on e.job_id = j.id
     group by o.session_id, o.namespace
)
select o.session_id, o.namespace, o.last_no, o.policy, o.retry,
       not coalesce(o.reopened and not o.retry, false)
           and not coalesce(q.waits or q.queued_no >= o.last_no or q.cancelled_at > o.touched_at
                            or (o.reopened and q.done_at > o.touched_at), false) as due
  from page o
  left join queued q using (session_id, namespace)
 order by o.session_id, o.namespace
