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

// MostAuths is how many different filters for authorization routes of a namespace have in a configuration: each route has to switch off
// all that are not its own.
const MostAuths = 8

// authTimeout is how long a server may take for its decision, by HTTP.
const authTimeout = 10 * time.Second

// mostOfName is how long the name of a filter is that has all of it: each route has to name the filters of others. Longer ones have its SHA-256.
const mostOfName = 256

// Filter is the name of the filter, "" without a server. It is equal for those that have the same filter.
func (a *ExternalAuth) Filter() string {
	if a == nil || a.Server.Name == (Name{}) {
		return ""
	}
	protocol := "HTTP"
	if a.GRPC {
		protocol = "GRPC"
	}
	server := fmt.Sprintf("envoy.filters.http.ext_authz/%s:%s:%s:%s", protocol, a.Server.Namespace, a.Server.Name.Name, a.Server.Port)
	name := server
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
	if isLong := len(name) > mostOfName; isLong || strings.Contains(a.Path, ":") { // no other part can have one: the path may read like those that follow
		if isLong {
			name = server
		}
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

// auths are the filters for authorization of a configuration.
type auths struct {
	byName map[string]*ExternalAuth
	nameOf map[*ExternalAuth]string // of those that routes have: long ones are not put together for each route
}

// name is the name of the filter of a route, "" if it has none.
func (a auths) name(of *ExternalAuth) string {
	if name, known := a.nameOf[of]; known {
		return name
	}
	return of.Filter()
}

// auths are those that the routes of a model have, and problems of routes whose namespace has too many.
func (m Model) auths() (all auths, problems []Problem) {
	all = auths{map[string]*ExternalAuth{}, map[*ExternalAuth]string{nil: ""}}
	number, refused := map[string]int{}, map[Name]bool{}
	refuse := func(r *Route, by Name, why string) {
		refused[by] = true
		problems = append(problems, Problem{Source: r.Source, Message: "requests are answered with 500: " + why})
	}
	for _, l := range m.HTTP {
		for _, r := range l.all() {
			if _, known := all.nameOf[r.Auth]; known {
				continue
			}
			name := r.Auth.Filter()
			all.nameOf[r.Auth] = name
			by := Name{r.Source.Namespace, name}
			if _, exists := all.byName[name]; exists || name == "" || refused[by] {
				continue
			}
			if m.RefusedAuths[by] { // it is none of those that there may be
				refuse(r, by, "each route of the configuration has to name the filter ExternalAuth of this one, with which it would be too large")
				continue
			}
			switch number[r.Source.Namespace]++; {
			case number[r.Source.Namespace] > MostAuths:
				refuse(r, by, fmt.Sprintf("there are more than %d different filters ExternalAuth in namespace %s", MostAuths, r.Source.Namespace))
			default:
				all.byName[name] = r.Auth
			}
		}
	}
	return all, problems
}

// names are the names of filters in order.
func (a auths) names() (names []string) {
	for name := range a.byName {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// text is equal for equal filters, and about as long as what a filter chain has of them at least.
func (a auths) text() (text string, least int) {
	var b strings.Builder
	for _, name := range a.names() {
		of := a.byName[name]
		b.WriteString(name + " " + of.cluster() + "\n")
		least += len(name) + of.size()
	}
	return b.String(), least
}

// filters are the filters in the order of their names.
func (a auths) filters() (all []*hcmv3.HttpFilter) {
	for _, name := range a.names() {
		all = append(all, httpFilter(name, a.byName[name].config()))
	}
	return all
}

// use adds the servers: each listener refers to all.
func (a auths) use(to usage) {
	for _, auth := range a.byName {
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

// Sizes are about what is written for a filter, in bytes: for each route of Envoy that switches it off, and for each filter chain of HTTP.
func (a *ExternalAuth) Sizes() (route, chain int) {
	name := a.Filter()
	return switchSize(name), len(name) + a.size()
}

// size is that of the configuration of a filter.
func (a *ExternalAuth) size() int {
	size := len(`{"name":"","typedConfig":{"@type":"type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz",`+
		`"decoderHeaderMutationRules":{"disallowExpression":{"regex":"^(:authority|host)$"}}}},`) + len(a.Path)
	for _, name := range slices.Concat(a.RequestHeaders, a.ResponseHeaders) {
		size += len(`{"exact":"","ignoreCase":true},`) + len(name)
	}
	return size
}

// unauthorized switches a filter off.
var unauthorized = packed(&extauthzv3.ExtAuthzPerRoute{Override: &extauthzv3.ExtAuthzPerRoute_Disabled{Disabled: true}})

// switchSize is the size of what switches the filter of a name off for a route.
func switchSize(name string) int {
	return len(`"":{"@type":"type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute","disabled":true},`) + len(name)
}

// switchesSize is the size of what switches all filters off.
func (h *hostRoutes) switchesSize() (size int) {
	for _, name := range h.filters {
		size += switchSize(name)
	}
	return listSize("typedPerFilterConfig", size)
}

// canAsk reports whether there is a filter for a route, if it is to have one.
func (o Options) canAsk(h *hostRoutes, r *Route) bool {
	return r.Auth == nil || slices.Contains(h.filters, o.auths.name(r.Auth))
}

// authorize has what a route becomes pass the filter of its own and no other. What no backend gets passes none. Without its filter a route
// is not served: its requests are answered with 500.
func (o Options) authorize(h *hostRoutes, r *Route, routes []*routev3.Route) []*routev3.Route {
	own := o.auths.name(r.Auth)
	if !o.canAsk(h, r) {
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
