// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"regexp"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// httpsRedirect is the route to the same location with HTTPS.
func (r *Route) httpsRedirect(oneLabel string) *routev3.Route {
	return &routev3.Route{Match: r.match(oneLabel), Action: &routev3.Route_Redirect{Redirect: &routev3.RedirectAction{
		SchemeRewriteSpecifier: &routev3.RedirectAction_HttpsRedirect{HttpsRedirect: true},
	}}}
}

// isByScheme reports whether a route is a redirect for the requests alone that did not come by its scheme.
func (o Options) isByScheme(r *Route) bool {
	return o.RedirectsByScheme && r.Redirect != nil && r.Redirect.Scheme != ""
}

// routes are those that a route becomes.
func (o Options) routes(r *Route, oneLabel string) []*routev3.Route {
	all := r.routes(oneLabel)
	if !o.isByScheme(r) {
		return all
	}
	for _, to := range all {
		to.Match.Headers = append(to.Match.Headers, &routev3.HeaderMatcher{
			Name: "X-Forwarded-Proto", InvertMatch: true,
			HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Exact{Exact: r.Redirect.Scheme}, IgnoreCase: true,
			}},
		})
	}
	return all
}

// route returns the route with its action.
func (r *Route) route(oneLabel string) *routev3.Route {
	to := &routev3.Route{Match: r.match(oneLabel)}
	edit(&to.RequestHeadersToAdd, &to.RequestHeadersToRemove, r.RequestHeaders)
	edit(&to.ResponseHeadersToAdd, &to.ResponseHeadersToRemove, r.ResponseHeaders)
	switch {
	case r.Redirect != nil:
		to.Action = &routev3.Route_Redirect{Redirect: r.redirect()}
	case totalWeight(r.Backends) == 0:
		to.Action = r.noBackend()
	default:
		if len(r.Backends) == 1 {
			edit(&to.RequestHeadersToAdd, &to.RequestHeadersToRemove, r.Backends[0].RequestHeaders)
			edit(&to.ResponseHeadersToAdd, &to.ResponseHeadersToRemove, r.Backends[0].ResponseHeaders)
		}
		to.Action = &routev3.Route_Route{Route: r.action()}
	}
	return to
}

// lost answers the share of the requests that backends have which are not valid; it is none without them.
func (r *Route) lost(oneLabel string) []*routev3.Route {
	if !r.losesShare() {
		return nil
	}
	const million = 1_000_000
	total := totalWeight(r.Backends)
	m := r.match(oneLabel)
	m.RuntimeFraction = &corev3.RuntimeFractionalPercent{DefaultValue: &typev3.FractionalPercent{
		Numerator: uint32(max(1, million*r.Lost/(r.Lost+total))), Denominator: typev3.FractionalPercent_MILLION,
	}}
	return []*routev3.Route{{Match: m, Action: r.noBackend()}}
}

// losesShare reports whether a share of the requests is answered, and others have a backend.
func (r *Route) losesShare() bool {
	return r.Lost > 0 && r.Redirect == nil && totalWeight(r.Backends) > 0
}

// noBackend answers what no backend is for.
func (r *Route) noBackend() *routev3.Route_DirectResponse {
	if r.NoBackend == 0 {
		return directResponse(500)
	}
	return directResponse(r.NoBackend)
}

// directResponse answers without a backend.
func directResponse(status uint32) *routev3.Route_DirectResponse {
	return &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{
		Status: status, Body: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{}},
	}}
}

// edit appends the edits of headers: adds before sets.
func edit(add *[]*corev3.HeaderValueOption, remove *[]string, e *HeaderEdit) {
	if e == nil {
		return
	}
	for _, h := range e.Add {
		*add = append(*add, &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: h.Name, Value: formatted(h.Value)}})
	}
	for _, h := range e.Set {
		*add = append(*add, header(h.Name, formatted(h.Value)))
	}
	*remove = append(*remove, e.Remove...)
}

// substitution is what Envoy replaces in the value of a header: what its documentation names for headers, in the forms that no version
// refuses. Another command, such as one with an argument that it does not take, has it refuse all routes of the table.
var substitution = regexp.MustCompile(`^%(?:%|(?:REQ\(:?[A-Za-z0-9_-]+(?:\?:?[A-Za-z0-9_-]+)?\)(?::[1-9][0-9]{0,4})?|` +
	`DOWNSTREAM_(?:DIRECT_)?REMOTE_ADDRESS(?:_WITHOUT_PORT)?|DOWNSTREAM_LOCAL_(?:ADDRESS(?:_WITHOUT_PORT)?|PORT|URI_SAN|SUBJECT)|` +
	`DOWNSTREAM_PEER_(?:URI_SAN|SUBJECT|ISSUER|FINGERPRINT_256|SERIAL|CERT)|DOWNSTREAM_TLS_(?:SESSION_ID|CIPHER|VERSION)|` +
	`HOSTNAME|PROTOCOL|REQUESTED_SERVER_NAME|RESPONSE_CODE(?:_DETAILS)?|RESPONSE_FLAGS|START_TIME|UPSTREAM_REMOTE_ADDRESS|VIRTUAL_CLUSTER_NAME)%|)`)

// formatted is a value of which Envoy takes each percent sign for one, but for those of substitutions.
func formatted(value string) string {
	if !strings.Contains(value, "%") {
		return value
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(value, "%")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		command := "%"
		switch {
		case strings.HasPrefix(rest, "%"):
			command = "%%"
		case rest != "" && strings.ContainsRune("DHPRSUV", rune(rest[0])): // no other letter begins one
			command = substitution.FindString("%" + rest[:min(len(rest), longestCommand)])
		}
		if value = rest[len(command)-1:]; command == "%" {
			command = "%%"
		}
		b.WriteString(command)
	}
}

// longestCommand is longer than what people write between percent signs.
const longestCommand = 200

func weightOf(b Backend) uint32 {
	if b.Weight == nil {
		return 1
	}
	return *b.Weight
}

func totalWeight(all []Backend) (total uint64) {
	for _, b := range all {
		total += uint64(weightOf(b))
	}
	return total
}

// action sends requests to backends.
func (r *Route) action() *routev3.RouteAction {
	a := &routev3.RouteAction{}
	if len(r.Backends) == 1 {
		a.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: r.Backends[0].cluster()}
	} else {
		weighted := &routev3.WeightedCluster{}
		for _, b := range r.Backends {
			c := &routev3.WeightedCluster_ClusterWeight{Name: b.cluster(), Weight: wrapperspb.UInt32(weightOf(b))}
			edit(&c.RequestHeadersToAdd, &c.RequestHeadersToRemove, b.RequestHeaders)
			edit(&c.ResponseHeadersToAdd, &c.ResponseHeadersToRemove, b.ResponseHeaders)
			weighted.Clusters = append(weighted.Clusters, c)
		}
		a.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
	}
	r.retry(a)
	if t := r.timeout(); t != nil {
		a.Timeout = durationpb.New(*t)
	} else { // a maximum of 0 turns Envoy's default of 15 s off
		a.MaxStreamDuration = &routev3.RouteAction_MaxStreamDuration{MaxStreamDuration: durationpb.New(0)}
	}
	r.rewrite(a)
	for _, m := range r.Mirrors {
		a.RequestMirrorPolicies = append(a.RequestMirrorPolicies, &routev3.RouteAction_RequestMirrorPolicy{
			Cluster: m.cluster(), RuntimeFraction: &corev3.RuntimeFractionalPercent{DefaultValue: m.share()},
		})
	}
	return a
}

// share is the share of requests that a mirror gets: in hundredths where these are enough, as the original has it, else in millionths.
func (m Mirror) share() *typev3.FractionalPercent {
	if m.Denominator == 0 {
		return &typev3.FractionalPercent{Numerator: 100}
	}
	numerator, denominator := uint64(m.Numerator), uint64(m.Denominator)
	if numerator*100%denominator == 0 {
		return &typev3.FractionalPercent{Numerator: uint32(numerator * 100 / denominator)}
	}
	return &typev3.FractionalPercent{Numerator: uint32(numerator * 1_000_000 / denominator), Denominator: typev3.FractionalPercent_MILLION}
}

// retriedOn is what has a request sent again: a connection that broke, or an attempt that timed out, without a response, a stream that the
// backend refused, and the status codes that are named.
const retriedOn = "retriable-status-codes,connect-failure,reset,refused-stream"

// retry has failed requests sent again. The timeout of backends is that of each attempt.
func (r *Route) retry(a *routev3.RouteAction) {
	if r.Retry == nil {
		return
	}
	p := &routev3.RetryPolicy{RetryOn: retriedOn, RetriableStatusCodes: r.Retry.Codes}
	if r.Retry.Attempts != nil {
		p.NumRetries = wrapperspb.UInt32(*r.Retry.Attempts)
	}
	if base := r.Retry.Backoff; base > 0 {
		p.RetryBackOff = &routev3.RetryPolicy_RetryBackOff{BaseInterval: durationpb.New(base), MaxInterval: durationpb.New(2 * base)}
	}
	if r.BackendTimeout != nil {
		p.PerTryTimeout = durationpb.New(*r.BackendTimeout)
	}
	a.RetryPolicy = p
}

// timeout is the smaller of those that are set. Of a route with retries it is that of all attempts.
func (r *Route) timeout() *time.Duration {
	switch {
	case r.Retry != nil:
		return r.RequestTimeout
	case r.BackendTimeout == nil:
		return r.RequestTimeout
	case r.RequestTimeout == nil:
		return r.BackendTimeout
	}
	return new(min(*r.RequestTimeout, *r.BackendTimeout))
}

func (r *Route) rewrite(a *routev3.RouteAction) {
	if r.Rewrite == nil {
		return
	}
	if r.Rewrite.Host != "" {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: r.Rewrite.Host}
	}
	switch {
	case r.Rewrite.CompletePath != nil:
		a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
			Pattern: &matcherv3.RegexMatcher{Regex: "^/.*$"}, Substitution: literal(*r.Rewrite.CompletePath),
		}
	case r.Rewrite.PrefixPath != nil:
		if regex := r.prefixRegex(*r.Rewrite.PrefixPath); regex != nil {
			a.RegexRewrite = regex
		} else {
			a.PrefixRewrite = strings.TrimSuffix(*r.Rewrite.PrefixPath, "/")
		}
	}
}

// prefixRegex replaces the prefix that a route matches where Envoy's own replacement would lose or double a slash; nil
// elsewhere.
func (r *Route) prefixRegex(replacement string) *matcherv3.RegexMatchAndSubstitute {
	matched, with := r.normalPath().Value, strings.TrimSuffix(replacement, "/")
	switch {
	case with == "" && matched == "/":
		return &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "^/(.*)"}, Substitution: `/\1`}
	case with == "":
		return &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "^" + regexp.QuoteMeta(matched) + "(/?)(.*)"}, Substitution: `/\2`}
	case matched == "/":
		return &matcherv3.RegexMatchAndSubstitute{Pattern: &matcherv3.RegexMatcher{Regex: "^/(.*)"}, Substitution: literal(with) + `/\1`}
	}
	return nil
}

// literal is a text in the place of what an expression matches: RE2 takes a backslash for a reference to a group, and refuses one to a
// group that there is not.
func literal(text string) string { return strings.ReplaceAll(text, `\`, `\\`) }

var redirectCodes = map[int]routev3.RedirectAction_RedirectResponseCode{
	302: routev3.RedirectAction_FOUND, 303: routev3.RedirectAction_SEE_OTHER,
	307: routev3.RedirectAction_TEMPORARY_REDIRECT, 308: routev3.RedirectAction_PERMANENT_REDIRECT,
}

func (r *Route) redirect() *routev3.RedirectAction {
	to := r.Redirect
	a := &routev3.RedirectAction{HostRedirect: to.Host, PortRedirect: to.port(), ResponseCode: redirectCodes[to.Code]}
	if to.Scheme != "" {
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: to.Scheme}
	}
	switch {
	case to.CompletePath != nil:
		a.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: *to.CompletePath}
	case to.PrefixPath != nil:
		if regex := r.prefixRegex(*to.PrefixPath); regex != nil {
			a.PathRewriteSpecifier = &routev3.RedirectAction_RegexRewrite{RegexRewrite: regex}
		} else {
			a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: *to.PrefixPath}
		}
	}
	return a
}

// port is the port of the new location, 0 for the one of the request.
func (to *Redirect) port() uint32 {
	switch {
	case to.Port != 0:
		return to.Port
	case to.Scheme == "https":
		return 443
	case to.Scheme == "http":
		return 80
	case to.Scheme != "":
		return 0
	}
	return to.listenerPort
}
