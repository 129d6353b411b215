// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// card is one spoilt answer, and when it is given.
type card struct {
	answer control.SpoiltAnswer
	when   control.SpoilWhen
}

// deal takes the next card of a rule's deck, and shuffles a new deck when it is empty.
func (r *rule) deal() *card {
	if len(r.deck) == 0 {
		r.deck = newDeck(*r.Spoil)
		r.chance.Random().Shuffle(len(r.deck), func(i, j int) { r.deck[i], r.deck[j] = r.deck[j], r.deck[i] })
	}
	next := r.deck[0]
	r.deck = r.deck[1:]
	return &next
}

func newDeck(how control.Spoil) (deck []card) {
	answers, when := how.Answers, []control.SpoilWhen{how.When}
	if len(answers) == 0 {
		answers = control.SpoiltAnswers()
	}
	if how.When == "" {
		when = []control.SpoilWhen{control.SpoilInstead, control.SpoilAfter}
	}
	for _, a := range answers {
		for _, w := range when {
			deck = append(deck, card{a, w})
		}
	}
	return deck
}

func validateSpoil(how control.Spoil) error {
	for _, a := range how.Answers {
		if !a.Known() {
			return fmt.Errorf("unknown answer %q: use one of %v", a, control.SpoiltAnswers())
		}
	}
	if !slices.Contains([]control.SpoilWhen{"", control.SpoilInstead, control.SpoilAfter}, how.When) {
		return fmt.Errorf("spoil %q: use %s, %s or nothing for both", how.When, control.SpoilInstead, control.SpoilAfter)
	}
	return nil
}

// spoil answers a request with something else than the server's answer.
func (h *httpSide) spoil(w http.ResponseWriter, r *http.Request, c card) {
	x := exchangeOf(r)
	body, err := bufferBody(r)
	if err != nil {
		panic(http.ErrAbortHandler) // the client went away
	}
	a := spoilt(c.answer, r.Method, x.facts, h.original(r, body, c))
	x.entry.spoilt(c.answer, a.code)
	a.write(w)
}

// bufferBody reads the body of a request that may be sent more than once.
func bufferBody(r *http.Request) ([]byte, error) {
	if r.Body == nil {
		return nil, nil
	}
	body, err := io.ReadAll(r.Body)
	r.Body = http.NoBody
	return body, err
}

// original is the answer that is to be spoilt: that of the server or, if it must not get
// the request, what it would answer to a read.
func (h *httpSide) original(r *http.Request, body []byte, c card) answer {
	f := exchangeOf(r).facts
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !hasObject(c.answer) && (reads || c.when == control.SpoilInstead):
		return answer{} // is not looked at
	case f.verb == "watch":
		return bookmark(h.ask(r, http.MethodGet, nil, "limit=1"), r.URL.Query().Get("resourceVersion"))
	case reads || c.when == control.SpoilAfter:
		return h.ask(r, r.Method, body, r.URL.RawQuery)
	case f.verb == "create":
		return sent(body, f)
	default:
		return h.ask(r, http.MethodGet, nil, "")
	}
}

// ask sends a request to the server, whatever the client does meanwhile, and keeps the
// answer, in JSON.
func (h *httpSide) ask(r *http.Request, method string, body []byte, query string) answer {
	r = r.Clone(context.WithoutCancel(r.Context()))
	r.Method, r.URL.RawQuery = method, query
	r.Header.Set("Accept", "application/json")
	r.Header.Del("Accept-Encoding")
	r.Body, r.ContentLength = http.NoBody, int64(len(body))
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	kept := &responseBuffer{answer: answer{header: http.Header{}}}
	h.forward(kept, r)
	if kept.code == 0 {
		panic(http.ErrAbortHandler) // the server is away
	}
	return kept.answer
}

// answer is a whole answer.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

func (a answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body) // a client that is gone needs no answer
}

// responseBuffer is a ResponseWriter that keeps the answer.
type responseBuffer struct{ answer }

func (k *responseBuffer) Header() http.Header { return k.header }

func (k *responseBuffer) WriteHeader(code int) {
	if k.code == 0 && code >= http.StatusOK { // those before are not the answer
		k.code = code
	}
}

func (k *responseBuffer) Write(b []byte) (int, error) {
	k.WriteHeader(http.StatusOK)
	k.body = append(k.body, b...)
	return len(b), nil
}

// redirectedPath is where redirects of spoilt answers lead.
const redirectedPath = "/.spoilt/"

// serveRedirected serves what redirects lead to: a page, or the same redirect again.
func serveRedirected(w http.ResponseWriter, r *http.Request, e entry) bool {
	if !strings.HasPrefix(r.URL.Path, redirectedPath) {
		return false
	}
	a := page(http.StatusOK)
	if r.URL.Path == redirectedPath+"loop" {
		a = redirect(http.StatusTemporaryRedirect, "loop")
	}
	e.answered(a.code)
	a.write(w)
	return true
}
