package callgate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Of a result that is stored.
const resultBytesMax = 1 << 20

type caller struct {
	SessionID       string `json:"sessionId"`
	ParentSessionID string `json:"parentSessionId,omitempty"`
	RunID           string `json:"runId,omitempty"`
	AgentID         string `json:"agentId,omitempty"`
	Phase           string `json:"phase,omitempty"`
	UserID          string `json:"userId,omitempty"`
	Host            string `json:"host,omitempty"`
}

type toolCall struct {
	CallID         string `json:"callId"`
	Tool           string `json:"tool"`
	ArgumentsJSON  string `json:"argumentsJson"`
	Justification  string `json:"justification,omitempty"`
	RepeatIntended bool   `json:"repeatIntended,omitempty"`
}

type verdict struct {
	Decision, Reason, RetryAfter, ApprovalID, ToolResultJSON, NextContextHint, ApprovedArgumentsJSON string
	IsError, ToolsDisabled                                                                           bool
	Permit                                                                                           *struct {
		IdempotencyKey, IdempotencyArgument, ArgumentsJSON string
		Attempt                                            int
		LeaseExpireTime                                    time.Time
	}
}

func (v *verdict) decision() string { return strings.TrimPrefix(v.Decision, "DECISION_") }

type recordRequest struct {
	Caller       caller     `json:"caller"`
	CallID       string     `json:"callId"`
	Status       string     `json:"status"`
	Error        *ToolError `json:"error,omitempty"`
	Result       *string    `json:"result,omitempty"`
	ResultDigest string     `json:"resultDigest,omitempty"`
	ResultBytes  int        `json:"resultBytes,omitempty"`
	Duration     string     `json:"duration,omitempty"`
	NotStarted   bool       `json:"notStarted,omitempty"`
	ReadOnly     bool       `json:"readOnly,omitempty"`
	KeySent      bool       `json:"keySent,omitempty"`
}

type recordAnswer struct {
	ToolResultJSON, NextContextHint string
	IsError, ToolsDisabled          bool
	Advice                          struct{ Repeat, RetryAfter string }
}

func (q *recordRequest) succeed(text string, isStored bool) {
	q.Status = "OUTCOME_STATUS_SUCCESS"
	if isStored {
		q.Result = &text
		return
	}
	digest := sha256.Sum256([]byte(text))
	q.ResultDigest, q.ResultBytes = hex.EncodeToString(digest[:]), len(text)
}

// The text of a value, and whether the server stores it.
func textOf(value any) (string, bool) {
	var text string
	switch value := value.(type) {
	case string:
		text = strings.ToValidUTF8(value, "\uFFFD")
	case []byte:
		if !utf8.Valid(value) {
			return string(value), false
		}
		text = string(value)
	default:
		var err error
		if text, err = toJSON(value); err != nil {
			text, _ = toJSON(fmt.Sprint(value))
		}
	}
	return text, len(text) <= resultBytesMax
}

func toJSON(value any) (string, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return strings.TrimSuffix(text.String(), "\n"), err
}

func (r *run) answer() Answer {
	return Answer{CallID: r.call.ID, Ran: r.attempts > 0, Attempts: r.attempts}
}

func (r *run) unasked(text string, err error) Answer {
	answer := r.answer()
	answer.Text, answer.IsError, answer.Reason, answer.Err = text, true, unavailable, err
	return answer
}

func (r *run) refused(v *verdict) Answer {
	answer := r.answer()
	answer.Text, answer.IsError = withHints(v.ToolResultJSON, r.notice), v.IsError
	answer.Decision, answer.Reason, answer.ToolsDisabled = v.decision(), v.Reason, v.ToolsDisabled
	answer.ApprovalID, answer.Recorded = v.ApprovalID, true
	var told struct {
		PreviousResult json.RawMessage `json:"previous_result"`
		IsTruncated    bool            `json:"previous_result_truncated"`
	}
	if answer.Decision == "REUSE" && json.Unmarshal([]byte(v.ToolResultJSON), &told) == nil && !told.IsTruncated {
		answer.Previous = told.PreviousResult
	}
	return answer
}

// Text and flags of an executed call; `record` is nil where the server could not be told.
func (r *run) describe(answer *Answer, v *verdict, record *recordAnswer, told string, isStored bool) {
	hints := []string{r.notice, v.NextContextHint}
	answer.IsError, answer.Recorded = answer.Err != nil, record != nil
	if record != nil {
		hints = append(hints, record.NextContextHint)
		answer.IsError, answer.ToolsDisabled = record.IsError, answer.ToolsDisabled || record.ToolsDisabled
	}
	switch {
	case record != nil && isStored:
		answer.Text = withHints(record.ToolResultJSON, hints...)
	case answer.Err != nil:
		answer.Text = withHints(failedText(told), hints...)
	default:
		if !utf8.ValidString(told) {
			told = fmt.Sprintf("%d bytes that are no text", len(told))
		}
		answer.Text = strings.TrimSpace(strings.Join(append([]string{told}, distinct(told, hints)...), "\n\n"))
	}
}

// The hints that are new, each once.
func distinct(text string, hints []string) []string {
	var found []string
	for _, hint := range hints {
		quoted, _ := toJSON(hint)
		isKnown := strings.Contains(text, strings.Trim(quoted, `"`)) || slices.Contains(found, hint)
		if hint != "" && !isKnown {
			found = append(found, hint)
		}
	}
	return found
}

// A JSON object with the hints as its member `warning`, put in as text, so that results stay byte for byte.
func withHints(text string, hints ...string) string {
	found := distinct(text, hints)
	if len(found) == 0 || !strings.HasSuffix(text, "}") {
		return strings.Join(append([]string{text}, found...), "\n\n")
	}
	warning, _ := toJSON(strings.Join(found, " "))
	comma := ","
	if text == "{}" {
		comma = ""
	}
	return text[:len(text)-1] + comma + `"warning":` + warning + "}"
}

func unavailableText(tool string, err error) string {
	why := "UNAVAILABLE"
	if failed := (*Error)(nil); errors.As(err, &failed) {
		why = orElse(failed.Reason, strings.ToUpper(failed.Code))
	}
	next := "Go on without this call, or tell the user that it was not made."
	message := fmt.Sprintf("%s was not run, and nothing was done: the service that decides whether tool calls may run gives "+
		"no answer now (%s). %s", tool, why, next)
	return notRun(message, next)
}

func unreportedText(tool string) string {
	next := "Do not repeat it: go on without its result, or tell the user."
	return notRun(tool+" was not run again: this call has run before, and the service that keeps its result gives no answer "+
		"now. "+next, next)
}

func notRun(message, next string) string {
	text, _ := toJSON(map[string]any{
		"status": unavailable, "message": message, "retryable": false, "next_action_hint": next,
	})
	return text
}

func failedText(message string) string {
	text, _ := toJSON(map[string]string{"status": "error", "error_message": message})
	return text
}

func approvedText(args string) string {
	if len(args) > 2000 {
		args = clip(args, 2000) + "… (cut)"
	}
	return fmt.Sprintf("An approver replaced the arguments of this call, and this is the outcome with those: %s. "+
		"The call with your arguments was not executed. Do not make it again.", args)
}
