// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// Transport has an HTTP client pass the door: GET, HEAD and OPTIONS read, all other methods change something. answer
// makes the answer to a request that is planned, with its body read into memory; nil fails such requests with
// ErrPlanned.
func (d *Door) Transport(next http.RoundTripper, answer func(*http.Request, []byte) *http.Response) http.RoundTripper {
	return transport{d, next, answer}
}

type transport struct {
	door   *Door
	next   http.RoundTripper
	answer func(*http.Request, []byte) *http.Response
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	var resp *http.Response
	var err error
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, "":
		err = t.door.Read(req.Context(), func(ctx context.Context) (err error) {
			if resp, err = t.next.RoundTrip(req); err != nil {
				return err
			}
			return errorOf(resp)
		})
	default:
		resp, err = t.change(req)
	}
	if errors.As(err, new(*answerError)) {
		return resp, nil // an answer is no error of a transport
	}
	return resp, err
}

// change sends a request that changes something. The answer is read before the call is over, since its context ends
// then.
func (t transport) change(req *http.Request) (resp *http.Response, err error) {
	req, body, err := buffered(req)
	if err != nil {
		return nil, err
	}
	call := Call{
		Verb: strings.ToLower(req.Method), Resource: strings.Trim(path.Dir(req.URL.Path), "/"), Name: path.Base(req.URL.Path),
	}
	if json.Valid(body) {
		call.Request = body
	}
	if t.answer != nil {
		call.Planned = func() {
			resp = t.answer(req, body)
			resp.Request = req
		}
	}
	err = t.door.Do(req.Context(), call, func(ctx context.Context) (err error) {
		resp, err = Exchange(t.next, req.Clone(ctx))
		return err
	})
	return resp, err
}

// Exchange sends a request and reads the answer, whose body outlives the context of the request. It is for clients that make
// their calls by Do and Read. An answer that refuses comes with an error: one that asks for a pause has the door keep it, and
// one that is the request's fault does not make the server an unhealthy one. Without an answer the response is nil.
func Exchange(next http.RoundTripper, req *http.Request) (*http.Response, error) {
	answer, err := next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	answer.Body = io.NopCloser(bytes.NewReader(text))
	return answer, errorOf(answer)
}

// buffered reads the body of a request, which a transport closes in any case.
func buffered(req *http.Request) (*http.Request, []byte, error) {
	if req.Body == nil {
		return req, nil, nil
	}
	defer req.Body.Close()
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the body of the request: %w", err)
	}
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	return req, body, nil
}

// answerError is an answer that refuses.
type answerError struct{ code int }

func (e *answerError) Error() string { return fmt.Sprintf("%d %s", e.code, http.StatusText(e.code)) }

// fault reports whether the server is to blame, rather than the request.
func (e *answerError) fault() bool {
	return e.code >= http.StatusInternalServerError || e.code == http.StatusTooManyRequests
}

// errorOf is the error of an answer, nil if it is none.
func errorOf(resp *http.Response) error {
	if resp.StatusCode < http.StatusBadRequest {
		return nil
	}
	err := &answerError{resp.StatusCode}
	if pause := RetryAfter(resp); pause > 0 {
		return Throttled(err, pause)
	}
	return err
}

// RetryAfter is how long the server of an answer wants to be left alone, 0 if it does not say.
func RetryAfter(resp *http.Response) time.Duration { return retryAfter(resp.Header.Get("Retry-After")) }

// retryAfter reads the header, which is seconds or a date.
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return time.Until(at)
	}
	return 0
}
