// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// streamed is a watch between a server's pipe and a reader that notes when each
// event came. It lives in a synctest bubble, so times are exact.
type streamed struct {
	server *io.PipeWriter
	rules  *ruleSet
	start  time.Time
	got    []string // "value@seconds"
	end    error
	ended  chan struct{}
	watch  *watch
}

func newStream(t *testing.T, target string) *streamed {
	body, server := io.Pipe()
	s := &streamed{server: server, rules: newRuleSet(1), start: time.Now(), ended: make(chan struct{})}
	s.watch = newWatch(context.Background(), body, "application/json", factsFor("GET", target, ""), s.rules)
	go func() {
		defer close(s.ended)
		// The watch is the reader's: each read is one event or a part of it.
		decoder := json.NewDecoder(s.watch)
		for {
			var value string
			if s.end = decoder.Decode(&value); s.end != nil {
				return
			}
			s.got = append(s.got, fmt.Sprintf("%s@%v", value, time.Since(s.start).Seconds()))
		}
	}()
	t.Cleanup(func() {
		s.watch.Close()
		server.Close()
		<-s.ended
		synctest.Wait()
	})
	return s
}

func (s *streamed) send(values ...string) {
	for _, v := range values {
		fmt.Fprintf(s.server, "%q\n", v)
	}
}

func (s *streamed) rule(t *testing.T, r control.Rule) control.Rule {
	t.Helper()
	added, err := s.rules.add(r)
	if err != nil {
		t.Fatal(err)
	}
	return added
}

func (s *streamed) want(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := strings.Join(s.got, " "); got != want {
		t.Fatalf("events are %q, want %q", got, want)
	}
}

const podWatch = "/api/v1/pods?watch=1"

var pods = control.Match{Resources: []string{"pods"}}

func TestHoldDelaysInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(t, podWatch)
		s.send("now")
		s.want(t, "now@0")
		r := s.rule(t, control.Rule{Match: pods, HoldWatch: &control.HoldWatch{For: 5 * time.Second}})
		s.send("a", "b")
		time.Sleep(time.Second)
		s.send("c")
		time.Sleep(10 * time.Second)
		s.want(t, "now@0 a@5 b@5 c@6")
		if hits := s.rules.list()[0].Hits; hits != 1 {
			t.Errorf("%d hits for one held watch", hits)
		}
		s.send("d")
		time.Sleep(time.Second)
		s.rules.remove(r.ID)
		s.want(t, "now@0 a@5 b@5 c@6 d@12")
	})
}

func TestHoldUntilReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(t, podWatch)
		s.rule(t, control.Rule{Match: pods, HoldWatch: &control.HoldWatch{}})
		other := newStream(t, "/api/v1/nodes?watch=1")
		other.rule(t, control.Rule{Match: pods, HoldWatch: &control.HoldWatch{}})
		s.send("a", "b")
		other.send("n")
		time.Sleep(time.Hour)
		s.want(t, "")
		other.want(t, "n@0")
		s.rules.clear()
		s.want(t, "a@3600 b@3600")
	})
}

func TestHeldEventsComeBeforeTheServersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(t, podWatch)
		s.rule(t, control.Rule{Match: pods, HoldWatch: &control.HoldWatch{For: time.Second}})
		s.send("a")
		s.server.Close()
		<-s.ended
		s.want(t, "a@1")
		if s.end != io.EOF {
			t.Fatalf("the watch ended with %v", s.end)
		}
	})
}

func TestCutWatchAfter(t *testing.T) {
	for name, tc := range map[string]struct {
		how  control.CutWatch
		want error
	}{
		"clean":  {control.CutWatch{After: 3 * time.Second}, io.EOF},
		"abrupt": {control.CutWatch{After: 3 * time.Second, Abrupt: true}, errCut},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStream(t, podWatch)
				time.Sleep(10 * time.Second)
				s.send("a")
				// The watch is older than the rule: the rule's clock counts.
				s.rule(t, control.Rule{CutWatch: &tc.how})
				time.Sleep(2 * time.Second)
				s.send("b")
				<-s.ended
				s.want(t, "a@10 b@12")
				if took := time.Since(s.start); took != 13*time.Second {
					t.Errorf("cut after %v, want 13s", took)
				}
				if !errors.Is(s.end, tc.want) {
					t.Errorf("ended with %v, want %v", s.end, tc.want)
				}
			})
		})
	}
}

func TestCutWatchLetsPassWhatItSkips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(t, podWatch)
		s.rule(t, control.Rule{Skip: 1, Times: 1, CutWatch: &control.CutWatch{}})
		s.send("a")
		time.Sleep(time.Hour)
		s.send("b")
		s.want(t, "a@0 b@3600")
	})
}

func TestCutNowWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStream(t, podWatch)
		s.send("a")
		synctest.Wait()
		s.watch.cutNow(control.CutWatch{})
		s.watch.cutNow(control.CutWatch{})
		<-s.ended
		if s.end != io.EOF {
			t.Fatalf("ended with %v", s.end)
		}
		s.want(t, "a@0")
	})
}

func TestExpiredEvents(t *testing.T) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})

	var event metav1.WatchEvent
	var status metav1.Status
	if err := json.Unmarshal(jsonCodec.expired, &event); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(event.Object.Raw, &status); err != nil {
		t.Fatal(err)
	}
	assertExpired(t, "json", event.Type, status)

	data, err := readLengthDelimited(strings.NewReader(string(protobufCodec.expired)))()
	if err != nil || len(data) != len(protobufCodec.expired) {
		t.Fatalf("the event is no frame of its own: %v", err)
	}
	event = metav1.WatchEvent{}
	if err := event.Unmarshal(data[4:]); err != nil {
		t.Fatal(err)
	}
	status = metav1.Status{}
	if _, _, err := protobuf.NewSerializer(scheme, scheme).Decode(event.Object.Raw, nil, &status); err != nil {
		t.Fatal(err)
	}
	assertExpired(t, "protobuf", event.Type, status)
}

func assertExpired(t *testing.T, encoding, eventType string, status metav1.Status) {
	t.Helper()
	if eventType != "ERROR" || status.Code != 410 || status.Reason != metav1.StatusReasonExpired {
		t.Errorf("%s: event %s with %+v", encoding, eventType, status)
	}
}

func TestFramesKeepTheirBytes(t *testing.T) {
	const frames = "\x00\x00\x00\x03abc\x00\x00\x00\x00\x00\x00\x00\x01z"
	next := readLengthDelimited(strings.NewReader(frames + "\x00\x00\x00\x09cut"))
	var got string
	for range 3 {
		frame, err := next()
		if err != nil {
			t.Fatal(err)
		}
		got += string(frame)
	}
	if got != frames {
		t.Fatalf("got %q, want %q", got, frames)
	}
	if frame, err := next(); err == nil {
		t.Fatalf("a frame that is not complete was handed out: %q", frame)
	}
}
