// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/skep-operator/skep/resources/outside"
)

// api is the address API: GET, PUT and DELETE /v1/addresses/{uid}. PUT is idempotent.
type api struct {
	url     string
	client  http.Client
	metrics *floatMetrics
}

func newAPI(c Config, s outside.Scope, m *floatMetrics) *api {
	door := outside.New(s, "fjord", outside.Limits{QPS: c.FjordQPS})
	return &api{url: c.FjordAPI, metrics: m, client: http.Client{Transport: door.Transport(http.DefaultTransport, planned)}}
}

// planned answers the requests of a dry run.
func planned(*http.Request, []byte) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"address":"192.0.2.1"}`))}
}

func (a *api) allocate(ctx context.Context, uid string) (string, error) {
	var known struct {
		Address string `json:"address"`
	}
	if status, err := a.do(ctx, http.MethodGet, uid, &known); err != nil || status == http.StatusOK {
		return known.Address, err
	}
	_, err := a.do(ctx, http.MethodPut, uid, &known)
	return known.Address, err
}

func (a *api) release(ctx context.Context, uid string) error {
	_, err := a.do(ctx, http.MethodDelete, uid, nil)
	return err
}

// maxBody is more than an answer has.
const maxBody = 16 << 20

// do returns the status of an answer, which is OK or NotFound, and decodes the body into answer.
func (a *api) do(ctx context.Context, method, uid string, answer any) (status int, err error) {
	a.metrics.Requests.WithLabelValues(method).Inc()
	req, err := http.NewRequestWithContext(ctx, method, a.url+"/v1/addresses/"+uid, nil)
	if err != nil {
		return 0, err
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound && method != http.MethodPut:
		return resp.StatusCode, nil
	case resp.StatusCode != http.StatusOK:
		return 0, fmt.Errorf("%s address %s: the API answers %s", method, uid, resp.Status)
	case answer != nil:
		err = json.NewDecoder(io.LimitReader(resp.Body, maxBody)).Decode(answer)
	}
	return resp.StatusCode, err
}
