package callgate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// GateOptions are what a gate takes next to its session.
type GateOptions struct {
	// RunID is a part of the session, such as one message of the user; a new one clears a loop's stop.
	RunID string
	// AgentID names the agent, for its daily budget.
	AgentID string
	// ParentSessionID is the session that started this one.
	ParentSessionID string
	// UserID is a pseudonym of the user for whom the agent works.
	UserID string
	// Host is the program in which the agent runs, and Phase the session's phase where its caller keeps it.
	Host, Phase string
	// Patience is how long a call waits in all for WAITs and advised retries; 0 is one minute, a negative one none.
	Patience time.Duration
	// ApprovalWait is how long a call waits for an approver; 0 is five minutes, a negative one returns at once.
	ApprovalWait time.Duration
}

// Gate is the gate of one session, for any number of goroutines. It is cheap to make.
type Gate struct {
	client  *Client
	caller  caller
	options GateOptions
}

// Gate returns the gate of a session.
func (c *Client) Gate(sessionID string, options GateOptions) *Gate {
	return &Gate{c, caller{
		SessionID: sessionID, ParentSessionID: options.ParentSessionID, RunID: options.RunID, AgentID: options.AgentID,
		Phase: options.Phase, UserID: options.UserID, Host: options.Host,
	}, options}
}

// NewRun returns the gate of the session's next run, such as one message of the user. Without an id it gets a random one.
func (g *Gate) NewRun(runID string) *Gate {
	if runID == "" {
		runID = "run-" + randomID()
	}
	options := g.options
	options.RunID = runID
	return g.client.Gate(g.caller.SessionID, options)
}

// Compacted reports a compaction of the model's context. Put the returned summary back into the context: it has the calls
// so far, and those not to repeat. A session without a call has an empty summary.
func (g *Gate) Compacted(ctx context.Context) (string, error) {
	var answer struct {
		State struct{ SummaryForModel string }
	}
	body, err := json.Marshal(map[string]string{"sessionId": g.caller.SessionID})
	if err == nil {
		by := orElse(g.client.by, "agent")
		err = g.client.send(ctx, "SessionService/MarkCompacted", body, &answer, g.client.timeout, by)
	}
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return answer.State.SummaryForModel, err
}

// Call is a tool call as the model proposes it.
type Call struct {
	// Tool is its name, as the model and the policy use it.
	Tool string
	// Args are the model's JSON text (string, []byte, json.RawMessage), which is sent byte for byte, or any value that
	// encoding/json writes as an object. Nil is {}.
	Args any
	// ID is the framework's id of the call, unique in the session; empty for a random one. One id is one call.
	ID string
	// ReadOnly states that the tool changes nothing: a failed call may be repeated.
	ReadOnly bool
	// Justification is the agent's, for approvers. RepeatIntended says that it means to repeat an earlier call.
	Justification  string
	RepeatIntended bool
	// Usage of the model since the last call.
	Usage *Usage
}

// Usage of a model.
type Usage struct {
	InputTokens      uint64 `json:"inputTokens,omitempty"`
	OutputTokens     uint64 `json:"outputTokens,omitempty"`
	CacheReadTokens  uint64 `json:"cacheReadTokens,omitempty"`
	CacheWriteTokens uint64 `json:"cacheWriteTokens,omitempty"`
	// CostMicros is the cost in millionths of a US dollar.
	CostMicros uint64 `json:"costMicros,omitempty"`
	Model      string `json:"model,omitempty"`
}

// Answer is what came of a call.
type Answer struct {
	// Text is for the model, as the tool's result, and IsError says that it reports an error.
	Text    string
	IsError bool
	// Decision is the server's last one: "ALLOW", "ASK", "WAIT", "REUSE", "DENY", "STOP"; empty without an answer.
	Decision string
	// Reason is the stable reason of the decision ("duplicate_call_blocked"), or "callgate_unavailable".
	Reason string
	// Ran is true where execute was begun, Attempts times.
	Ran      bool
	Attempts int
	// Err is what execute returned, or why the server could not be asked.
	Err error
	// ToolsDisabled: no further call is permitted in this scope. Let the model give its final answer.
	ToolsDisabled bool
	// ApprovalID is the open approval request.
	ApprovalID string
	// Recorded is false where the report is sent again in the background.
	Recorded bool
	CallID   string
	// Previous is the previous result of a REUSE, as JSON; nil where it is not stored whole.
	Previous json.RawMessage
}

// Message is the sentence of Text for people, or all of it.
func (a *Answer) Message() string {
	var read struct {
		Message      string `json:"message"`
		ErrorMessage string `json:"error_message"`
	}
	_ = json.Unmarshal([]byte(a.Text), &read)
	return orElse(orElse(read.Message, read.ErrorMessage), a.Text)
}

// Outcome is an Answer with the value of execute.
type Outcome[T any] struct {
	Answer
	Value T
}

// Result returns the value, or for a REUSE the previous result read into the same type. Its error is the tool's, the
// cause of an unavailable server (ErrUnavailable), or a *RefusedError.
func (o *Outcome[T]) Result() (T, error) {
	var previous T
	switch {
	case o.Err != nil:
		return o.Value, o.Err
	case o.Ran:
		return o.Value, nil
	case o.Previous != nil && json.Unmarshal(o.Previous, &previous) == nil:
		return previous, nil
	}
	if text, isText := any(&previous).(*string); isText && o.Previous != nil {
		*text = string(o.Previous)
		return previous, nil
	}
	return previous, &RefusedError{o.Answer}
}

// Permit is the permission under which execute runs.
type Permit struct {
	CallID  string
	Attempt int
	key     string
	isUsed  bool
}

// IdempotencyKey is to be sent to the tool's provider. Ask for it only then: the report says that it was sent.
func (p *Permit) IdempotencyKey() string {
	p.isUsed = true
	return p.key
}

type permitKey struct{}

// PermitOf returns the permit of the execution that got this context; nil outside of one.
func PermitOf(ctx context.Context) *Permit {
	permit, _ := ctx.Value(permitKey{}).(*Permit)
	return permit
}

// Run asks the server, waits, executes once for each permit, reports, and retries where the server leaves that to the
// client. The outcome has the text for the model, also for a refusal, a failed tool and an unavailable server.
//
// execute gets the arguments to run, which may be repaired by the policy or chosen by an approver, decoded into A. Where
// they do not fit A, the model is told. The value is reported as it is where it is text (string, []byte), else as JSON.
// A panic of execute is reported as an unknown outcome, and goes on.
//
// The error is a mistake of the program, such as a credential or an id (*Error), the end of ctx, or ErrNotStarted.
func Run[A, T any](
	ctx context.Context, g *Gate, call Call, execute func(context.Context, A) (T, error),
) (Outcome[T], error) {
	r, err := newRun(g, call)
	if err != nil {
		return Outcome[T]{}, err
	}
	var value T
	r.execute = func(ctx context.Context, text []byte, argument string) (any, bool, error) {
		var args A
		if err := json.Unmarshal(text, &args); err != nil {
			message := "the arguments do not fit the tool: " + strings.TrimPrefix(err.Error(), "json: ")
			return nil, false, &ToolError{Message: message, Type: "InvalidArguments"}
		}
		isTaken := argument != "" && hasMember(args, argument)
		got, err := execute(ctx, args)
		if err == nil {
			value = got
		}
		return got, isTaken, err
	}
	answer, err := r.alone(ctx)
	return Outcome[T]{answer, value}, err
}

// Whether A has a place for this argument of the policy.
func hasMember(args any, name string) bool {
	members := map[string]json.RawMessage{}
	if text, err := json.Marshal(args); err != nil || json.Unmarshal(text, &members) != nil {
		return false
	}
	_, found := members[name]
	return found
}
