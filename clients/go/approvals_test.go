package callgate

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// Ids of the session's open approval requests.
func openRequests(t *testing.T, g *Gate) []string {
	t.Helper()
	var answer struct {
		Approvals []struct{ ApprovalID string }
	}
	boss := newClient(t, Config{By: "boss"})
	if err := boss.Invoke(context.Background(), "ApprovalService/ListApprovals", map[string]string{"sessionId": g.caller.SessionID, "state": "APPROVAL_STATE_PENDING"}, &answer); err != nil {
		t.Error(err)
	}
	var found []string
	for _, one := range answer.Approvals {
		found = append(found, one.ApprovalID)
	}
	return found
}

// Answers the approval request of a call, as soon as there is one.
func answer(t *testing.T, g *Gate, how map[string]any) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, how["approvalId"] = range openRequests(t, g) {
			boss := newClient(t, Config{By: "boss"})
			if err := boss.Invoke(context.Background(), "ApprovalService/ResolveApproval", how, &struct{}{}); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Error("no approval request")
}

func TestApprovals(t *testing.T) {
	chosen := fresh()
	text, err := json.Marshal(chosen)
	if err != nil {
		t.Fatal(err)
	}
	for name, how := range map[string]map[string]any{
		"approved": {"approve": true}, "denied": {"approve": false, "reason": "no"},
		"edited": {"approve": true, "editedArgumentsJson": string(text)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g, args := newGate(t, GateOptions{}), fresh()
			go answer(t, g, how)
			got, err := Run(context.Background(), g, Call{Tool: "ask_payment", Args: args, ID: "a"}, get)
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "approved":
				if got.Value.ID != args.ID {
					t.Fatalf("%+v", got)
				}
			case "edited":
				if got.Value.ID != chosen.ID || !strings.Contains(got.Text, "An approver replaced the arguments") || got.CallID != "a/edited" {
					t.Fatalf("%+v", got)
				}
			default:
				if got.Ran || got.Reason != "approval_denied" {
					t.Fatalf("%+v", got)
				}
			}
		})
	}
}

func TestApprovalRequestIsLeftOrWithdrawn(t *testing.T) {
	g := newGate(t, GateOptions{ApprovalWait: -1})
	got, err := Run(context.Background(), g, Call{Tool: "ask_payment", Args: fresh(), ID: "a"}, never(t))
	if err != nil || got.Decision != "ASK" || got.ApprovalID == "" || states(t, g)["a"] != "HELD" {
		t.Fatalf("%+v %v", got, err)
	}
	g = newGate(t, GateOptions{})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, g, Call{Tool: "ask_payment", Args: fresh(), ID: "a"}, never(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); len(openRequests(t, g)) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the approval request is open")
		}
	}
}
