create table retry_layer (
  tenant_id bigint not null,
  failure smallint not null,
  weights double precision[] not null,
  squares double precision[] not null,
  losses_estimate real[] not null,
  losses_layer real[] not null,
  primary key (tenant_id, failure)
);
comment on table retry_layer is 'The logistic residual on the estimate, for each kind of failure. It speaks once it tells that kind''s last 500 outcomes at least 2 % better.';
comment on column retry_layer.tenant_id is 'The tenant.';
comment on column retry_layer.failure is 'The kind; codes as in outcome.failure.';
comment on column retry_layer.weights is 'Weights: of the estimate''s log odds, the constant, and call.features in their order.';
comment on column retry_layer.squares is 'Sums of squared gradients (AdaGrad).';
comment on column retry_layer.losses_estimate is 'Log losses of the estimate for the last outcomes, the newest last.';
comment on column retry_layer.losses_layer is 'Log losses of the layer for the same outcomes.';
