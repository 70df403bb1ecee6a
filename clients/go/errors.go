package callgate

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Kinds of an Error, for errors.Is.
var (
	// ErrUnavailable: the server gave no answer in time, or cannot answer now. The same request may be sent again.
	ErrUnavailable = errors.New("callgate: the server is unavailable")
	// ErrUnauthenticated: no credential, or an invalid one.
	ErrUnauthenticated = errors.New("callgate: unauthenticated")
	// ErrPermissionDenied: the credential is valid, and may not do this.
	ErrPermissionDenied = errors.New("callgate: permission denied")
	// ErrInvalidArgument: a field of the request is malformed; Error.Field names it.
	ErrInvalidArgument = errors.New("callgate: invalid argument")
	// ErrNotFound: the request names something unknown.
	ErrNotFound = errors.New("callgate: not found")
	// ErrFailedPrecondition: the request does not fit what is stored; Error.Reason says how.
	ErrFailedPrecondition = errors.New("callgate: failed precondition")
	// ErrCallIDReused: the id belongs to a call with other arguments, or to one that this process is running.
	ErrCallIDReused = errors.New("callgate: call id reused")
	// ErrResourceExhausted: a quota or a limit is used up; Error.Reason says which.
	ErrResourceExhausted = errors.New("callgate: resource exhausted")
	// ErrNotStarted is returned by an execute that did nothing, as it is or wrapped. The call is reported as cancelled
	// before it began, and may run again under the same id.
	ErrNotStarted = errors.New("callgate: the tool was not started")
)

// Error is a fault of the caller or of the server. A refusal by a policy is none: it is an Outcome.
type Error struct {
	// Code is the status of gRPC as the Connect protocol spells it: "invalid_argument".
	Code string
	// Reason is a stable string of the contract ("CALL_ID_REUSED"); empty where something before the server refused.
	Reason string
	// Message is for people.
	Message string
	// Field is the malformed field; empty unless the server named one.
	Field string
	// RetryAfter is the wait that the server asks for; 0 without one.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	name := e.Reason
	if name == "" {
		name = e.Code
	}
	return fmt.Sprintf("callgate: %s (%s)", e.Message, name)
}

// Is compares with the kinds above.
func (e *Error) Is(target error) bool {
	switch {
	case e.Reason == "CALL_ID_REUSED" && target == ErrCallIDReused:
		return true
	case e.Reason == "OVERLOADED":
		return target == ErrUnavailable
	case e.Reason == "CALLER_UNKNOWN":
		return target == ErrUnauthenticated
	}
	kind, ok := map[string]error{
		"unauthenticated": ErrUnauthenticated, "permission_denied": ErrPermissionDenied, "out_of_range": nil,
		"invalid_argument": ErrInvalidArgument, "not_found": ErrNotFound, "unimplemented": nil,
		"failed_precondition": ErrFailedPrecondition, "resource_exhausted": ErrResourceExhausted,
	}[e.Code]
	if !ok {
		kind = ErrUnavailable
	}
	return target == kind
}

// True where the server would refuse the same report again. A credential or an operator's repair may be on its way.
func (e *Error) isPermanent() bool {
	switch e.Reason {
	case "POLICY_UNREADABLE", "KEY_MISSING", "TENANT_SUSPENDED":
		return false
	}
	return !e.Is(ErrUnavailable) && !e.Is(ErrUnauthenticated) && !e.Is(ErrResourceExhausted)
}

func readError(status int, body []byte) *Error {
	var read struct {
		Code, Message string
		Details       []struct {
			Debug struct {
				Reason, RetryDelay string
				FieldViolations    []struct{ Field string }
			}
		}
	}
	if json.Unmarshal(body, &read) != nil || read.Code == "" {
		code, ok := map[int]string{
			http.StatusUnauthorized: "unauthenticated", http.StatusForbidden: "permission_denied",
			http.StatusNotFound: "unimplemented",
		}[status]
		if !ok {
			code = "unavailable"
		}
		text := strings.TrimSpace(string(body[:min(len(body), 200)]))
		return &Error{Code: code, Message: fmt.Sprintf("HTTP status %d, not an answer of callgate: %s", status, text)}
	}
	err := &Error{Code: read.Code, Message: read.Message}
	var fields []string
	for _, detail := range read.Details {
		if detail.Debug.Reason != "" {
			err.Reason = detail.Debug.Reason
		}
		if detail.Debug.RetryDelay != "" {
			err.RetryAfter = duration(detail.Debug.RetryDelay)
		}
		for _, violation := range detail.Debug.FieldViolations {
			fields = append(fields, violation.Field)
		}
	}
	err.Field = strings.Join(fields, ", ")
	return err
}

// RefusedError is what Outcome.Result returns for a call that was not executed.
type RefusedError struct{ Answer Answer }

func (e *RefusedError) Error() string {
	return "callgate: the call was not executed: " + e.Answer.Message()
}

// ToolError is a tool's failure in all detail. Other errors are read as far as they tell: Timeout() bool,
// HTTPStatusCode() int, SQLState() string.
type ToolError struct {
	// Message is given to the model.
	Message string `json:"message"`
	// Type is a type name of the provider's: "rate_limit_error".
	Type string `json:"type,omitempty"`
	// HTTPStatus is 100 to 599; 0 for none.
	HTTPStatus int `json:"httpStatus,omitempty"`
	// ProviderCode is the provider's own code: "insufficient_quota", "40001".
	ProviderCode string `json:"providerCode,omitempty"`
	// RetryAfterHeader is the provider's Retry-After, as it came.
	RetryAfterHeader string `json:"retryAfterHeader,omitempty"`
}

func (e *ToolError) Error() string { return e.Message }

const errorBytesMax = 64 << 10

func toolError(err error) ToolError {
	var told ToolError
	if exact := (*ToolError)(nil); errors.As(err, &exact) {
		told = *exact
	}
	told.Message = err.Error()
	if told.Type == "" {
		kind := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
		if !strings.HasPrefix(kind, "errors.") && !strings.HasPrefix(kind, "fmt.") && kind != "callgate.ToolError" {
			told.Type = clip(kind, 200)
		}
	}
	if late := (interface{ Timeout() bool })(nil); errors.As(err, &late) && late.Timeout() {
		told.Type = "Timeout"
	}
	if http := (interface{ HTTPStatusCode() int })(nil); told.HTTPStatus == 0 && errors.As(err, &http) {
		told.HTTPStatus = http.HTTPStatusCode()
	}
	if sql := (interface{ SQLState() string })(nil); told.ProviderCode == "" && errors.As(err, &sql) {
		told.ProviderCode = sql.SQLState()
	}
	if told.HTTPStatus < 100 || told.HTTPStatus > 599 {
		told.HTTPStatus = 0
	}
	if told.Message == "" {
		told.Message = fmt.Sprintf("%T", err)
	}
	told.Message = clip(told.Message, errorBytesMax)
	told.ProviderCode, told.RetryAfterHeader = clip(told.ProviderCode, 200), clip(told.RetryAfterHeader, 200)
	return told
}

func clip(text string, bytesMax int) string {
	return strings.ToValidUTF8(text[:min(len(text), bytesMax)], "")
}
