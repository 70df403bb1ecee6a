update call set
  rule = case rule
    when 'breaker' then 'global_circuit_breaker' when 'cooldown' then 'tool_circuit_breaker' else rule
  end,
  findings = (
    select jsonb_agg(
      case x.finding ->> 'rule'
        when 'breaker' then jsonb_set(x.finding, '{rule}', '"global_circuit_breaker"')
        when 'cooldown' then jsonb_set(x.finding, '{rule}', '"tool_circuit_breaker"')
        else x.finding
      end
      order by x.place
    )
    from jsonb_array_elements(findings) with ordinality x (finding, place)
  )
where rule in ('breaker', 'cooldown') or findings @? '$[*] ? (@.rule == "breaker" || @.rule == "cooldown")';
