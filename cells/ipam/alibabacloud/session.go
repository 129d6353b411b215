// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package alibabacloud

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	openapi "github.com/alibabacloud-go/darabonba-openapi/v2/client"
	"github.com/alibabacloud-go/tea/dara"
	"golang.org/x/sync/semaphore"

	"github.com/skep-operator/skep/resources/outside"
	"github.com/skep-operator/skep/runtime/cell"
)

// network is what Alibaba Cloud is reached through.
type network struct {
	http.RoundTripper
	// poll is how long is waited between looks at an interface that is being attached.
	poll time.Duration
}

func newNetwork() network { return network{outside.Network(metadataHost), 2500 * time.Millisecond} }

// Call implements dara.HttpClient for the SDK. The answer is read before the call is over, since its context ends then.
func (n network) Call(req *http.Request, _ *http.Transport) (*http.Response, error) {
	resp, err := outside.Exchange(n.RoundTripper, req)
	if resp == nil {
		return nil, err
	}
	if of, ok := req.Context().Value(answerKey{}).(*answer); ok {
		of.status, of.pause = resp.StatusCode, outside.RetryAfter(resp)
		if of.body, err = io.ReadAll(resp.Body); err != nil {
			return nil, err
		}
		resp.Body = io.NopCloser(bytes.NewReader(of.body))
	}
	return resp, nil // the SDK makes errors of answers
}

// answer is what the SDK does not return of an answer.
type answer struct {
	status int
	pause  time.Duration // that it asks for
	body   []byte
}

type answerKey struct{}

// session is the operator's way to Alibaba Cloud. It begins with the first call: what is not known then is asked for again by the
// next call.
type session struct {
	sessionParams
	throttle outside.Throttle
	identity *identity

	begins *semaphore.Weighted // guards begun: it is begun by one call at a time
	begun  *begun
}

type sessionParams struct {
	cell.In

	Config  Config
	Server  *outside.Door
	Network network
	Log     *slog.Logger
}

// begun is what is known once the session has begun.
type begun struct {
	region, vpc string
	clients     map[product]*openapi.Client
}

func newSession(p sessionParams) *session {
	return &session{sessionParams: p, identity: newIdentity(p.Server), begins: semaphore.NewWeighted(1)}
}

// begin returns what calls need: where the nodes are, and credentials that are fresh.
func (s *session) begin(ctx context.Context) (*begun, error) {
	if err := s.begins.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.begins.Release(1)
	if err := s.identity.refresh(ctx); err != nil {
		return nil, err
	}
	if s.begun != nil {
		return s.begun, nil
	}
	b := &begun{region: s.Config.AlibabaCloudRegionID, vpc: s.Config.AlibabaCloudVPCID, clients: map[product]*openapi.Client{}}
	for _, missing := range []struct {
		value       *string
		field, flag string
	}{{&b.region, "region-id", "alibaba-cloud-region-id"}, {&b.vpc, "vpc-id", "alibaba-cloud-vpc-id"}} {
		if *missing.value != "" {
			continue
		}
		var err error
		if *missing.value, err = s.metadata(ctx, missing.field); err != nil {
			return nil, fmt.Errorf("reading %s from instance metadata: %w; --%s sets it", missing.field, err, missing.flag)
		}
	}
	for of := range versions {
		client, err := openapi.NewClient(&openapi.Config{
			Credential: s.identity, Endpoint: dara.String(of.endpoint(b.region)), RegionId: &b.region, Protocol: dara.String("HTTPS"),
			UserAgent: dara.String("skep"), HttpClient: s.Network,
		})
		if err != nil {
			return nil, err
		}
		client.DisableSDKError = dara.Bool(true) // it drops what errors wrap
		b.clients[of] = client
	}
	s.begun = b
	s.Log.Info("using Alibaba Cloud", "region", b.region, "vpc", b.vpc, "credentials", s.identity.name())
	return b, nil
}

// product is a service of Alibaba Cloud.
type product string

const (
	ecs = product("ecs")
	vpc = product("vpc")
)

// versions are those of the APIs.
var versions = map[product]string{ecs: "2014-05-26", vpc: "2016-04-28"}

// endpoint is that of a region which instances of VPCs reach.
func (p product) endpoint(region string) string {
	return fmt.Sprintf("%s-vpc.%s.aliyuncs.com", p, region)
}
