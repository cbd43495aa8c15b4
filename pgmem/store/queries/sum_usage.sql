-- What the models that wrote a session's summaries and verdicts counted: one row a model.
select f.model, count(*) as calls, sum((f.usage ->> 'input_tokens')::bigint)::bigint as input_tokens,
       sum((f.usage ->> 'output_tokens')::bigint)::bigint as output_tokens
  from (
        select n.model, n.usage
          from pgmem.nodes n
         where n.session_id = %(session_id)s and n.usage is not null
         union all
        select v.model, v.usage
          from pgmem.verdicts v
         where v.session_id = %(session_id)s and v.usage is not null
       ) f
 group by f.model
 order by f.model
