// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clusterpool

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/k8s"
)

// Rule 29.
func TestEndOfTermWaitsForWritesThatMayYetTakeEffect(t *testing.T) {
	for name, test := range map[string]struct {
		ago     time.Duration // of the last write without an answer; 0: there was none
		fenced  time.Duration // after which the fence shuts
		waits   time.Duration
		noFence bool
	}{
		"all answered":         {0, time.Hour, 0, false},
		"one just now":         {time.Nanosecond, time.Hour, settleTime - time.Nanosecond, false},
		"one some time ago":    {2 * time.Second, time.Hour, settleTime - 2*time.Second, false},
		"one long ago":         {time.Minute, time.Hour, 0, false},
		"the fence shuts":      {time.Nanosecond, time.Second, time.Second - time.Nanosecond, false},
		"nothing to be fenced": {time.Nanosecond, time.Hour, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &syncer{params: params{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}}
				if !test.noFence {
					s.Fence = k8s.Unfenced()
					shut := time.AfterFunc(test.fenced, s.Fence.Close)
					defer shut.Stop()
				}
				if test.ago > 0 {
					s.unanswered = time.Now()
					time.Sleep(test.ago)
				}
				began := time.Now()
				s.settle()
				if waited := time.Since(began); waited != test.waits {
					t.Errorf("waited for %s, not %s", waited, test.waits)
				}
			})
		})
	}
}

// Rule 29: which failures leave open what the request did.
func TestOpenRequests(t *testing.T) {
	nodes := v2.CiliumNodeResource.GroupResource()
	for _, test := range []struct {
		err  error
		open bool
	}{
		{nil, false},
		{apierrors.NewConflict(nodes, "a", nil), false},
		{apierrors.NewTooManyRequests("busy", 1), false},
		{apierrors.NewForbidden(nodes, "a", nil), false},
		{apierrors.NewInternalError(errors.New("etcd")), true},
		{apierrors.NewTimeoutError("slow", 1), true},
		{apierrors.NewServerTimeout(nodes, "update", 1), true},
		{io.ErrUnexpectedEOF, true},
		{context.Canceled, true},
	} {
		if got := open(test.err); got != test.open {
			t.Errorf("%v: open is %v", test.err, got)
		}
	}
}

// Rule 29: a write outlasts the term, but not for ever.
func TestWritesOutlastTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		term, end := context.WithCancel(context.WithValue(t.Context(), key{}, "kept"))
		write, done := outlast(term, answerTime)
		defer done()
		end()
		time.Sleep(answerTime - time.Nanosecond)
		synctest.Wait()
		if write.Err() != nil || write.Value(key{}) != "kept" {
			t.Error("a write is cut off with the term")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if write.Err() == nil {
			t.Error("a write goes on for ever")
		}
	})
}

// oneNode is a client of a server with one node.
type oneNode struct {
	k8s.Client
	node *unstructured.Unstructured
}

func (c oneNode) Modify(_ context.Context, _ k8s.Ref, edit func(*unstructured.Unstructured) error) (*unstructured.Unstructured, bool, error) {
	return c.node, true, edit(c.node)
}

// Rules 19, 20 and 24: a decision is written only upon what it was made about.
func TestDecisionsAreWrittenOnlyUponWhatTheyAreAbout(t *testing.T) {
	about := observed{Name: "a", UID: "uid-1"}
	for name, test := range map[string]struct {
		now  simNode
		want []string
	}{
		"as it was":     {simNode{name: "a", uid: "uid-1"}, []string{"10.0.0.0/24"}},
		"another node":  {simNode{name: "a", uid: "uid-2"}, nil},
		"going":         {simNode{name: "a", uid: "uid-1", going: true}, nil},
		"has another":   {simNode{name: "a", uid: "uid-1", cidrs: []string{"10.0.9.0/24"}}, []string{"10.0.9.0/24"}},
		"has some more": {simNode{name: "a", uid: "uid-1", cidrs: []string{"10.0.0.0/25", "xyz"}}, []string{"10.0.0.0/25", "xyz"}},
	} {
		u := test.now.encoded()
		s := &syncer{params: params{Client: oneNode{node: u}, Metrics: newMetrics()}}
		err := s.modify(t.Context(), k8s.Ref{Name: "a"}, about, func(u *unstructured.Unstructured) error {
			return setPodCIDRs(u, about.PodCIDRs, []string{"10.0.0.0/24"})
		})
		if got, _ := says(u); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: the node has %v, not %v (%v)", name, got, test.want, err)
		}
	}
}
