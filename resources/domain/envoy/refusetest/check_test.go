// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package refusetest

import (
	"math"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

func value(text string) proto.Message { return setting("x", text) }

func setting(name, text string) proto.Message {
	return &routev3.Route{RequestHeadersToAdd: []*corev3.HeaderValueOption{{Header: &corev3.HeaderValue{Key: name, Value: text}}}}
}

func replaced(pattern, with string) proto.Message {
	return &routev3.RouteAction{RegexRewrite: &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: pattern}, Substitution: with}}
}

func matched(text string) proto.Message {
	return &routev3.RouteMatch{Headers: []*routev3.HeaderMatcher{{Name: "x", HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
		StringMatch: &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: text}}},
	}}}}
}

func retried(base, most time.Duration) proto.Message {
	return &routev3.RetryPolicy{RetryBackOff: &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(base), MaxInterval: durationpb.New(most)}}
}

// ENV-42: each kind of what Envoy refuses is found, wherever it is in a message.
func TestFinds(t *testing.T) {
	for what, m := range map[string]proto.Message{
		"the header \"Host\" is changed":      setting("Host", "v"),
		"the header \":path\" is changed":     setting(":path", "v"),
		"the header \"hOST\" is changed":      &routev3.WeightedCluster_ClusterWeight{ResponseHeadersToRemove: []string{"hOST"}},
		"begins no command":                   value("100%"),
		"of headers":                          value("%ENVIRONMENT(PATH)%"),
		"has an argument or a length":         value("%PROTOCOL(x)%"),
		"has the argument":                    value("%REQ(a?b?c)%"),
		"missing closing )":                   matched("(a"),
		"pattern too large":                   matched(`/\pL{1000}`),
		"refers to group 1 of 0":              replaced("^/.*$", `/x\1`),
		"ends with a backslash":               replaced("^/.*$", `/x\`),
		"has the reference":                   replaced("^/.*$", `/x\a`),
		"the weights of clusters add up to 0": &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "a"}}}}},
		"add up to 4294967296":                &routev3.WeightedCluster{Clusters: []*routev3.WeightedCluster_ClusterWeight{{Weight: wrapperspb.UInt32(math.MaxUint32)}, {Weight: wrapperspb.UInt32(1)}}},
		"a retry waits from":                  retried(2, 1),
		"a duration is":                       &routev3.RouteAction{Timeout: durationpb.New(-1)},
		"replaced in two ways":                &routev3.RouteAction{PrefixRewrite: "/", RegexRewrite: &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "a"}}},
	} {
		if err := checkMessages(m); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, m := range []proto.Message{
		value("a 100%% %REQ(X-A?:path):20% %START_TIME%"), matched(`\pL{10}`), replaced("^/(.*)", `/x\\1\1`), retried(1, 2), setting("hosts", ""),
	} {
		if err := checkMessages(m); err != nil {
			t.Errorf("%v: %v", m, err)
		}
	}
}
