package callgate

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	pollMax     = time.Minute
	pollPause   = time.Second
	patience    = time.Minute
	approval    = 5 * time.Minute
	settleMax   = time.Second
	unavailable = "callgate_unavailable"
)

type run struct {
	*Gate
	call     Call
	key      callKey
	args     string
	execute  func(ctx context.Context, args []byte, argument string) (value any, isTaken bool, err error)
	patience time.Duration
	approval time.Duration
	attempts int
	notice   string
	// The last question may have been answered by a permit that nobody uses.
	owed bool
	// The approval request that the call waits for.
	held string
}

func newRun(g *Gate, call Call) (*run, error) {
	call.ID = orElse(call.ID, "call-"+randomID())
	r := &run{Gate: g, call: call}
	r.patience, r.approval = orDefault(g.options.Patience, patience), orDefault(g.options.ApprovalWait, approval)
	r.key = callKey{g.caller.SessionID, call.ID}
	switch args := call.Args.(type) {
	case nil:
	case string:
		r.args = args
	case []byte:
		r.args = string(args)
	case json.RawMessage:
		r.args = string(args)
	default:
		text, err := toJSON(args)
		if err != nil {
			return nil, fmt.Errorf("callgate: Args: %w", err)
		}
		r.args = text
	}
	return r, nil
}

// All of it, while nothing else of this client runs the same call: the server would permit the same id to both.
func (r *run) alone(ctx context.Context) (Answer, error) {
	c := r.client
	c.mu.Lock()
	isRunning := c.running[r.key]
	c.running[r.key] = true
	c.mu.Unlock()
	if isRunning {
		message := fmt.Sprintf("call %s of session %s is running in this process", r.key.call, r.key.session)
		return r.answer(), &Error{Code: "failed_precondition", Reason: "CALL_ID_REUSED", Message: message, Field: "call_id"}
	}
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.running, r.key)
	}()
	return r.flow(ctx)
}

func (r *run) flow(ctx context.Context) (Answer, error) {
	defer func() {
		if r.owed {
			report := r.report(recordRequest{Status: "OUTCOME_STATUS_CANCELLED", NotStarted: true})
			report.approval = r.held
			r.client.reports.put(report)
		}
	}()
	// Else the server would permit this id anew.
	if earlier, err := r.client.reports.take(ctx, r.key); err != nil {
		return r.answer(), err
	} else if earlier != nil {
		if _, err := r.client.reports.now(ctx, earlier); errors.Is(err, ErrUnavailable) {
			return r.unasked(unreportedText(r.call.Tool), err), nil
		} else if failed := (*Error)(nil); err != nil && (!errors.As(err, &failed) || !failed.isPermanent()) {
			return r.answer(), err
		}
	}
	if r.client.reports.isFull() {
		err := &Error{Code: "unavailable", Message: "the outcomes of too many earlier calls wait to be stored"}
		return r.unasked(unavailableText(r.call.Tool, err), err), nil
	}
	var last *Answer
	for {
		verdict, err := r.judge(ctx)
		switch {
		case err != nil && last != nil && (ctx.Err() != nil || errors.Is(err, ErrUnavailable)):
			return *last, ctx.Err()
		case errors.Is(err, ErrUnavailable):
			r.client.log.Warn("callgate: a call was not run", "tool", r.call.Tool, "server", r.client.server, "error", err)
			return r.unasked(unavailableText(r.call.Tool, err), err), nil
		case err != nil:
			return r.answer(), err
		case verdict.ApprovedArgumentsJSON != "":
			return r.runApproved(ctx, verdict.ApprovedArgumentsJSON)
		case verdict.decision() != "ALLOW" && last != nil:
			last.ToolsDisabled = last.ToolsDisabled || verdict.ToolsDisabled
			return *last, nil
		case verdict.decision() != "ALLOW":
			return r.refused(verdict), nil
		case ctx.Err() != nil:
			return r.answer(), ctx.Err()
		}
		r.owed, r.held = false, ""
		answer, record, err := r.runOnce(ctx, verdict)
		if err != nil {
			return answer, err
		}
		last = &answer
		if record == nil || record.Advice.Repeat != "REPEAT_BY_CLIENT" || duration(record.Advice.RetryAfter) > r.patience {
			return answer, nil
		}
		pause := duration(record.Advice.RetryAfter)
		r.patience -= pause
		if err := sleep(ctx, pause); err != nil {
			return answer, err
		}
	}
}

// Runs the arguments that an approver chose, as a call with an id of its own.
func (r *run) runApproved(ctx context.Context, args string) (Answer, error) {
	edited := *r
	edited.args, edited.call.ID, edited.call.Usage, edited.call.RepeatIntended = args, r.call.ID+"/edited", nil, false
	edited.key.call, edited.notice, edited.attempts = edited.call.ID, approvedText(args), 0
	return edited.alone(ctx)
}

// Asks until the call may run, is refused, or has waited as long as it may.
func (r *run) judge(ctx context.Context) (*verdict, error) {
	last, err := r.ask(ctx, 0)
	for err == nil {
		left := r.left(last)
		if *left <= 0 || (last.decision() == "WAIT" && duration(last.RetryAfter) > r.patience) {
			return last, nil
		}
		began := time.Now()
		next, failed := r.ask(ctx, min(*left, pollMax))
		if failed == nil {
			last = next
		} else if !errors.Is(failed, ErrUnavailable) {
			err = failed
			break
		}
		// A server that is replaced is waited for, and one that does not wait itself is not asked at once.
		pause := min(max(duration(last.RetryAfter), pollPause), *left) - time.Since(began)
		if pause > 0 && *r.left(last) > 0 {
			err = sleep(ctx, pause)
		}
		*left -= time.Since(began)
	}
	r.owed = r.owed || r.held != ""
	return nil, err
}

// What is left of the time for this verdict.
func (r *run) left(v *verdict) *time.Duration {
	switch v.decision() {
	case "ASK":
		return &r.approval
	case "WAIT":
		return &r.patience
	}
	return new(time.Duration)
}

func (r *run) ask(ctx context.Context, wait time.Duration) (*verdict, error) {
	request := map[string]any{"caller": r.caller, "call": toolCall{
		CallID: r.call.ID, Tool: r.call.Tool, ArgumentsJSON: r.args, Justification: r.call.Justification,
		RepeatIntended: r.call.RepeatIntended,
	}}
	if r.call.Usage != nil {
		request["usage"] = r.call.Usage
	}
	if wait > 0 {
		request["maxWait"] = seconds(wait)
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nil, fmt.Errorf("callgate: %w", err)
	}
	for {
		var answer struct{ Verdict verdict }
		before := r.owed
		r.owed = true
		err := r.client.retry(ctx, "GateService/Evaluate", body, &answer, r.client.timeout+wait)
		isPermit := answer.Verdict.decision() == "ALLOW"
		if err == nil && (answer.Verdict.decision() == "" || isPermit != (answer.Verdict.Permit != nil)) {
			err = &Error{Code: "unknown", Message: r.client.server + " returned no verdict of callgate"}
		}
		if err == nil {
			r.owed, r.held = isPermit, answer.Verdict.ApprovalID
			return &answer.Verdict, nil
		}
		var failed *Error
		if errors.As(err, &failed) && failed.Reason == "OVERLOADED" {
			// Shed before any work.
			r.owed = before
			if pause := jitter(max(failed.RetryAfter, firstPause)); pause <= r.patience {
				r.patience -= pause
				if err := sleep(ctx, pause); err != nil {
					return nil, err
				}
				continue
			}
		} else if ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
			r.owed = before
		}
		return nil, err
	}
}

// Executes once and reports, also where execute does not return.
func (r *run) runOnce(ctx context.Context, v *verdict) (Answer, *recordAnswer, error) {
	permit := &Permit{CallID: r.call.ID, Attempt: v.Permit.Attempt, key: v.Permit.IdempotencyKey}
	args, argument := []byte(orElse(orElse(v.Permit.ArgumentsJSON, r.args), "{}")), v.Permit.IdempotencyArgument
	var members map[string]json.RawMessage
	if argument != "" && json.Unmarshal(args, &members) == nil && members != nil {
		members[argument], _ = json.Marshal(permit.key)
		args, _ = json.Marshal(members)
	}
	stop := r.beat(v.Permit.LeaseExpireTime)
	defer stop()
	r.attempts++
	began, hasReturned := time.Now(), false
	defer func() {
		if !hasReturned {
			message := r.call.Tool + " failed because of a bug in the tool. Other arguments do not help"
			request := recordRequest{Status: "OUTCOME_STATUS_UNKNOWN", KeySent: permit.isUsed}
			request.Error = &ToolError{Message: message, Type: "panic"}
			r.settle(ctx, r.report(request))
		}
	}()
	value, isTaken, failed := r.execute(context.WithValue(ctx, permitKey{}, permit), args, argument)
	hasReturned = true
	told, isStored := textOf(value)
	request := recordRequest{Duration: seconds(time.Since(began)), KeySent: isTaken || permit.isUsed}
	answer := r.answer()
	answer.Decision, answer.Reason, answer.ToolsDisabled, answer.Err = v.decision(), v.Reason, v.ToolsDisabled, failed
	isEnded := failed != nil && ctx.Err() != nil && (errors.Is(failed, ctx.Err()) || errors.Is(failed, context.Cause(ctx)))
	switch {
	case failed == nil:
		request.succeed(told, isStored)
	case isEnded || errors.Is(failed, ErrNotStarted):
		request.Status, request.NotStarted = "OUTCOME_STATUS_CANCELLED", errors.Is(failed, ErrNotStarted)
		answer.Recorded = r.settle(ctx, r.report(request))
		answer.Text, answer.IsError = failedText(failed.Error()), true
		if isEnded {
			failed = ctx.Err()
		}
		return answer, nil, failed
	default:
		tool := toolError(failed)
		request.Status, request.Error, told, isStored = "OUTCOME_STATUS_ERROR", &tool, tool.Message, true
	}
	record, err := r.client.reports.now(context.WithoutCancel(ctx), r.report(request))
	if err != nil {
		record = nil
	}
	r.describe(&answer, v, record, told, isStored)
	return answer, record, nil
}

// Sends a report whose caller is ending, and waits a second for it.
func (r *run) settle(ctx context.Context, report *report) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleMax)
	defer cancel()
	_, err := r.client.reports.now(ctx, report)
	return err == nil
}

// Renews the lease until the returned function is called.
func (r *run) beat(expires time.Time) func() {
	ctx, stop := context.WithCancel(context.Background())
	// By the server's clock, which may be another one than this machine's.
	pause := min(max(time.Until(expires)/3, firstPause), time.Minute)
	body := r.report(recordRequest{Status: "OUTCOME_STATUS_RUNNING"}).body
	go func() {
		for sleep(ctx, pause) == nil {
			err := r.client.send(ctx, "GateService/Record", body, &struct{}{}, r.client.timeout, r.client.by)
			if err != nil && ctx.Err() == nil {
				r.client.log.Debug("callgate: no heartbeat", "call", r.key.call, "error", err)
			}
		}
	}()
	return stop
}

func (r *run) report(request recordRequest) *report {
	request.Caller, request.CallID, request.ReadOnly = r.caller, r.call.ID, r.call.ReadOnly
	body, err := json.Marshal(request)
	if err != nil {
		// No field of it can fail.
		panic(err)
	}
	return &report{key: r.key, executed: !request.NotStarted, body: body}
}

func orDefault(given, otherwise time.Duration) time.Duration {
	if given == 0 {
		return otherwise
	}
	return max(given, 0)
}

func orElse(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}

func randomID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

func seconds(d time.Duration) string {
	return fmt.Sprintf("%.3fs", math.Floor(float64(d.Milliseconds()))/1e3)
}

func duration(text string) time.Duration {
	read, _ := time.ParseDuration(orElse(text, "0s"))
	return read
}
