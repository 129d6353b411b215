// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package streamtest

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// A recording is what a real server answered while properties ran: the bytes of
// its lists and watches, in the pieces in which they arrived, each with the
// number of steps that the property had taken by then. Played back, a piece
// comes when the property has taken as many.

// Recording is the tapes of a rig, by property.
type Recording map[string]*Tape

// Tape is what one property saw.
type Tape struct {
	Exchanges []*Exchange
	Revisions []slim.Revision // that Put returned, in order

	mu    sync.Mutex
	steps int
}

// Exchange is a request and its answer.
type Exchange struct {
	Request     string // path and query, without what differs each time
	Step        int    // at which the answer began
	Status      int
	ContentType string
	Pieces      []Piece
}

// Piece is a piece of an answer, or its end.
type Piece struct {
	Step int
	Data []byte `json:",omitempty"`
	End  string `json:",omitempty"` // "EOF", or the error of the connection
}

// LoadRecording reads a recording.
func LoadRecording(path string) (Recording, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", path, err)
	}
	var r Recording
	if err := json.NewDecoder(zipped).Decode(&r); err != nil {
		return nil, fmt.Errorf("recording %s: %w", path, err)
	}
	return r, nil
}

// Save writes the recording.
func (r Recording) Save(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(f)
	err = json.NewEncoder(zipped).Encode(r)
	return errors.Join(err, zipped.Close(), f.Close())
}

// Begin takes a step: it is called before whatever changes the world.
func (t *Tape) Begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps++
}

// Wrote notes the revision that a Put returned.
func (t *Tape) Wrote(revision slim.Revision) slim.Revision {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Revisions = append(t.Revisions, revision)
	return revision
}

// Record returns a RoundTripper that puts on the tape what passes it.
func (t *Tape) Record(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		e := &Exchange{Request: essence(r), Step: t.steps, Status: resp.StatusCode, ContentType: resp.Header.Get("Content-Type")}
		t.Exchanges = append(t.Exchanges, e)
		resp.Body = &recordedBody{resp.Body, t, e}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// essence is what identifies a request.
func essence(r *http.Request) string {
	q := r.URL.Query()
	q.Del("timeoutSeconds")
	return r.URL.Path + "?" + q.Encode()
}

type recordedBody struct {
	io.ReadCloser
	tape     *Tape
	exchange *Exchange
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.tape.mu.Lock()
	defer b.tape.mu.Unlock()
	if n > 0 {
		b.exchange.Pieces = append(b.exchange.Pieces, Piece{Step: b.tape.steps, Data: append([]byte(nil), p[:n]...)})
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		b.exchange.Pieces = append(b.exchange.Pieces, Piece{Step: b.tape.steps, End: err.Error()})
	}
	return n, err
}

// ReplayRig tests streams against what a real server has answered.
func ReplayRig(recording Recording, declared stream.Kind[Thing]) Rig {
	return Rig{
		Open: func(t *testing.T, property string, opts ...stream.Option) *World {
			tape := recording[property]
			if tape == nil {
				t.Fatalf("there is no recording of %s: make it anew", property)
			}
			p := &player{t: t, tape: tape, steps: make(chan struct{})}
			source := stream.NewSource(ConnectTo(p))
			open := func(kind stream.Kind[Thing]) *stream.Stream[Thing] {
				s, err := stream.New(source, kind, opts...)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(s.Close)
				return s
			}
			return p.world(property, declared, open)
		},
		Around: synctest.Test,
		Has:    Faculties{Server: true},
	}
}

// player plays a tape.
type player struct {
	t    *testing.T
	tape *Tape

	mu       sync.Mutex
	step     int
	steps    chan struct{} // closed and replaced at every step
	played   int           // exchanges
	written  int           // revisions
	requests []Request
}

func (p *player) world(property string, declared stream.Kind[Thing], open func(stream.Kind[Thing]) *stream.Stream[Thing]) *World {
	kind := RealKind(declared, property)
	s := open(kind)
	return &World{
		Resource: s, Close: s.Close, Namespace: RealNamespace(property),
		Put: func(string, string) slim.Revision {
			p.begin()
			p.mu.Lock()
			defer p.mu.Unlock()
			p.written++
			return p.tape.Revisions[p.written-1]
		},
		Delete: func(string) { p.begin() },
		Requests: func() Count {
			p.mu.Lock()
			defer p.mu.Unlock()
			return countRequests(p.requests)
		},
		Cut:      p.begin,
		Expire:   p.begin,
		Restrict: func(labels string) stream.Resource[Thing] { return open(kind.MatchingLabels(labels)) },
		Missed: func(change func()) {
			p.begin()
			change()
			p.begin()
		},
	}
}

func (p *player) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.step++
	close(p.steps)
	p.steps = make(chan struct{})
}

// RoundTrip implements http.RoundTripper.
func (p *player) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	p.mu.Lock()
	if p.played == len(p.tape.Exchanges) {
		p.mu.Unlock()
		// The recording ended when the property did; so does this.
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	e := p.tape.Exchanges[p.played]
	p.played++
	p.requests = append(p.requests, Request{Watch: q.Get("watch") == "true", Initial: q.Get("sendInitialEvents") == "true"})
	p.mu.Unlock()
	if got := essence(r); got != e.Request {
		p.t.Errorf("request %d is\n%s, recorded was\n%s: if the change is meant, record anew", p.played, got, e.Request)
	}
	if err := p.await(r.Context(), e.Step); err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: e.Status, Status: http.StatusText(e.Status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {e.ContentType}}, ContentLength: -1, Request: r,
		Body: &playedBody{player: p, ctx: r.Context(), pieces: e.Pieces},
	}, nil
}

// await waits until the property has taken so many steps.
func (p *player) await(ctx context.Context, step int) error {
	for {
		p.mu.Lock()
		now, next := p.step, p.steps
		p.mu.Unlock()
		if now >= step {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type playedBody struct {
	player *player
	ctx    context.Context
	pieces []Piece
}

func (b *playedBody) Read(out []byte) (int, error) {
	if len(b.pieces) == 0 {
		<-b.ctx.Done() // it was open when the recording ended
		return 0, b.ctx.Err()
	}
	piece := &b.pieces[0]
	if err := b.player.await(b.ctx, piece.Step); err != nil {
		return 0, err
	}
	switch piece.End {
	case "":
	case io.EOF.Error():
		return 0, io.EOF
	default:
		return 0, errors.New(piece.End)
	}
	n := copy(out, piece.Data)
	rest := Piece{Step: piece.Step, Data: piece.Data[n:]}
	b.pieces = b.pieces[1:]
	if len(rest.Data) > 0 {
		b.pieces = append([]Piece{rest}, b.pieces...)
	}
	return n, nil
}

func (b *playedBody) Close() error { return nil }

// RealNamespace is where a property's Things are on a real server.
func RealNamespace(property string) string { return "streamtest-" + strings.ToLower(property) }

// RealKind restricts a kind of Things to those of a property on a real server,
// which puts a ConfigMap of its own into every namespace.
func RealKind(declared stream.Kind[Thing], property string) stream.Kind[Thing] {
	return declared.InNamespace(RealNamespace(property)).MatchingFields("metadata.name!=kube-root-ca.crt")
}
