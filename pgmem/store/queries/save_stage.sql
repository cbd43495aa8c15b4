-- Adds what an exchange left a flow in, and names the namespaces that have as many active turns as they are compacted at.
with due as materialized (
    select policy.namespace
      from unnest(%(namespaces)s::text[], %(thresholds)s::bigint[]) policy (namespace, threshold)
     cross join lateral (
            select t.boundary
              from pgmem.trees t
             where t.session_id = %(session_id)s and t.namespace = policy.namespace
             limit 1
           ) tree
     cross join lateral (
            select count(*) as turns
              from (select
                      from pgmem.turns u
                     where u.session_id = %(session_id)s and u.namespace = policy.namespace and u.no > tree.boundary
                       and not exists (
                               select
                                 from pgmem.branches b
                                where b.session_id = u.session_id and b.namespace = u.namespace
                                  and b.left_to >= u.no and b.left_from <= u.no
                           )
                     order by u.no
                     limit policy.threshold
                   ) u
           ) active
     where active.turns >= policy.threshold
),
saved as (
    insert into pgmem.stages (session_id, flow, no, step, entered, state, created_at)
    select %(session_id)s, %(flow)s, %(no)s, %(step)s, %(entered)s::text[], %(state)s::json, statement_timestamp()
     where %(changed)s
)
select due.namespace
  from due
 order by due.namespace
