// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/skep-operator/skep/resources/domain/expression"
)

// ExternalAuth has a server decide about each request of a route before it is sent on (ENV-45).
type ExternalAuth struct {
	// Server is the port that is asked. Without a name there is none to ask: all requests of the route are answered with 500.
	Server Backend
	GRPC   bool
	Path   string // that the server is asked with before the path of the request, by HTTP
	// RequestHeaders are what the server gets beside what it always does; without any, all by gRPC and no others by HTTP.
	RequestHeaders []string
	// ResponseHeaders are what the backend gets of the server's answer, by HTTP; all without any.
	ResponseHeaders []string
	MaxBody         uint16 // of the body of the request, in bytes, that the server gets; 0 for none
}

// mostAuths is how many different filters for authorization routes of a namespace have in a configuration: each route has to switch off
// all that are not its own.
const mostAuths = 8

// authTimeout is how long a server may take for its decision, by HTTP.
const authTimeout = 10 * time.Second

// filter is the name of the filter, "" without a server. It is equal for those that have the same filter.
func (a *ExternalAuth) filter() string {
	if a == nil || a.Server.Name == (Name{}) {
		return ""
	}
	protocol := "HTTP"
	if a.GRPC {
		protocol = "GRPC"
	}
	name := fmt.Sprintf("envoy.filters.http.ext_authz/%s:%s:%s:%s", protocol, a.Server.Namespace, a.Server.Name.Name, a.Server.Port)
	if a.Path != "" {
		name += ":pp:" + a.Path
	}
	if a.MaxBody > 0 {
		name += fmt.Sprint(":fb:", a.MaxBody)
	}
	if len(a.RequestHeaders) > 0 {
		name += ":arh:" + strings.Join(sorted(a.RequestHeaders), ",")
	}
	if len(a.ResponseHeaders) > 0 {
		name += ":esh:" + strings.Join(sorted(a.ResponseHeaders), ",")
	}
	if strings.Contains(a.Path, ":") { // no other part can have one: the path may read like those that follow
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %q %q", a.Path, a.MaxBody, sorted(a.RequestHeaders), sorted(a.ResponseHeaders)))
		name += ":sha256:" + hex.EncodeToString(sum[:])
	}
	return name
}

func sorted(all []string) []string { return slices.Compact(slices.Sorted(slices.Values(all))) }

// cluster is the name of the cluster of the server.
func (a *ExternalAuth) cluster() string {
	if a.GRPC {
		return "grpc:" + a.Server.cluster()
	}
	return "http:" + a.Server.cluster()
}

// headerName is a name of a header that a client can send.
var headerName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}$")

// authPath is a path that Envoy takes.
var authPath = regexp.MustCompile(`^/[!-~]*$`)

// check returns what Envoy refuses: with it all routes of a listener would be frozen.
func (a *ExternalAuth) check() error {
	if a == nil {
		return nil
	}
	if a.Path != "" && !authPath.MatchString(a.Path) {
		return fmt.Errorf("the path %s of the filter ExternalAuth does not begin with a slash, or has spaces", expression.Quote(a.Path))
	}
	for _, name := range slices.Concat(a.RequestHeaders, a.ResponseHeaders) {
		if !headerName.MatchString(name) {
			return fmt.Errorf("%s in the filter ExternalAuth is no name of a header", expression.Quote(name))
		}
	}
	return nil
}

// auths are the filters for authorization of a configuration, by name.
type auths map[string]*ExternalAuth

// auths are those that the routes of a model have, and problems of routes whose namespace has too many.
func (m Model) auths() (all auths, problems []Problem) {
	all = auths{}
	number, refused := map[string]int{}, map[string]bool{}
	for _, l := range m.HTTP {
		for _, r := range l.all() {
			name := r.Auth.filter()
			if _, exists := all[name]; exists || name == "" || refused[name] {
				continue
			}
			if number[r.Source.Namespace]++; number[r.Source.Namespace] <= mostAuths {
				all[name] = r.Auth
				continue
			}
			refused[name] = true
			problems = append(problems, Problem{Source: r.Source, Message: fmt.Sprintf(
				"requests are answered with 500: there are more than %d different filters ExternalAuth in namespace %s", mostAuths, r.Source.Namespace)})
		}
	}
	return all, problems
}

// names are the names of filters in order.
func (a auths) names() (names []string) {
	for name := range a {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// filters are the filters in the order of their names.
func (a auths) filters() (all []*hcmv3.HttpFilter) {
	for _, name := range a.names() {
		all = append(all, httpFilter(name, a[name].config()))
	}
	return all
}

// use adds the servers: each listener refers to all.
func (a auths) use(to usage) {
	for _, auth := range a {
		protocol := http1 // the version that the client speaks says nothing of the server
		if auth.GRPC {
			protocol = http2
		}
		to[auth.cluster()] = usedCluster{auth.Server, protocol}
	}
}

// config is the configuration of a filter.
func (a *ExternalAuth) config() *extauthzv3.ExtAuthz {
	to := &extauthzv3.ExtAuthz{
		DecoderHeaderMutationRules: &mutationv3.HeaderMutationRules{DisallowExpression: &matcherv3.RegexMatcher{Regex: "^(:authority|host)$"}},
		AllowedHeaders:             exactly(a.RequestHeaders),
	}
	if a.MaxBody > 0 {
		to.WithRequestBody = &extauthzv3.BufferSettings{MaxRequestBytes: uint32(a.MaxBody), AllowPartialMessage: true}
	}
	address := a.Server.Name.Name + ":" + a.Server.Port
	if a.GRPC {
		to.TransportApiVersion = corev3.ApiVersion_V3
		to.Services = &extauthzv3.ExtAuthz_GrpcService{GrpcService: &corev3.GrpcService{TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: a.cluster(), Authority: address},
		}}}
		return to
	}
	scheme := "http://"
	if a.Server.TLS != nil {
		scheme = "https://"
	}
	upstream := exactly(a.ResponseHeaders)
	if upstream == nil {
		upstream = &matcherv3.ListStringMatcher{Patterns: []*matcherv3.StringMatcher{
			{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: ".*"}}},
		}}
	}
	to.Services = &extauthzv3.ExtAuthz_HttpService{HttpService: &extauthzv3.HttpService{
		ServerUri: &corev3.HttpUri{
			Uri: scheme + address, Timeout: durationpb.New(authTimeout), HttpUpstreamType: &corev3.HttpUri_Cluster{Cluster: a.cluster()},
		},
		PathPrefix:            a.Path,
		AuthorizationResponse: &extauthzv3.AuthorizationResponse{AllowedUpstreamHeaders: upstream},
	}}
	return to
}

// exactly matches headers of these names, nil without any.
func exactly(names []string) *matcherv3.ListStringMatcher {
	if len(names) == 0 {
		return nil
	}
	all := &matcherv3.ListStringMatcher{}
	for _, name := range sorted(names) {
		all.Patterns = append(all.Patterns, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: name}, IgnoreCase: true})
	}
	return all
}

// unauthorized switches a filter off.
var unauthorized = packed(&extauthzv3.ExtAuthzPerRoute{Override: &extauthzv3.ExtAuthzPerRoute_Disabled{Disabled: true}})

// canAsk reports whether there is a filter for a route, if it is to have one.
func (h *hostRoutes) canAsk(r *Route) bool {
	return r.Auth == nil || slices.Contains(h.filters, r.Auth.filter())
}

// authorize has what a route becomes pass the filter of its own and no other. What no backend gets passes none. Without its filter a route
// is not served: its requests are answered with 500.
func (h *hostRoutes) authorize(r *Route, routes []*routev3.Route) []*routev3.Route {
	own := r.Auth.filter()
	if !h.canAsk(r) {
		for i, to := range routes {
			routes[i] = &routev3.Route{Match: to.Match, Action: directResponse(500)}
		}
	}
	for _, to := range routes {
		for _, name := range h.filters {
			if name == own && to.GetDirectResponse() == nil {
				continue
			}
			if to.TypedPerFilterConfig == nil {
				to.TypedPerFilterConfig = map[string]*anypb.Any{}
			}
			to.TypedPerFilterConfig[name] = unauthorized
		}
	}
	return routes
}
