// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

var errFormat = errors.New("a value has a substitution that is not served here")

// substitution is a command in the value of a header.
var substitution = regexp.MustCompile(`%%|%REQ\(([^():]+)\)%|%`)

// expand replaces the commands in a value by what a request has.
func expand(value string, r *http.Request) (string, error) {
	var err error
	text := substitution.ReplaceAllStringFunc(value, func(found string) string {
		switch m := substitution.FindStringSubmatch(found); {
		case found == "%%":
			return "%"
		case m[1] != "":
			return r.Header.Get(m[1])
		}
		err = fmt.Errorf("%w: %q", errFormat, value)
		return found
	})
	return text, err
}

// edit removes headers, replaces others, and then adds, in Envoy's order. Values are expanded with the request as it came.
func edit(to http.Header, add []*corev3.HeaderValueOption, remove []string, r *http.Request) error {
	for _, name := range remove {
		to.Del(name)
	}
	appended := http.Header{}
	for _, h := range add {
		name := h.Header.Key
		value, err := expand(h.Header.Value, r)
		if err != nil {
			return err
		}
		if value == "" { // unless keep_empty_value is set, which is not served
			continue
		}
		switch h.AppendAction {
		case corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD:
			to.Set(name, value)
		case corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD:
			appended.Add(name, value)
		default:
			return fmt.Errorf("the action %v for the header %s is not served here", h.AppendAction, name)
		}
	}
	for name, values := range appended {
		to[name] = append(to[name], values...)
	}
	return nil
}

// reference is a group of a regular expression in a substitution.
var reference = regexp.MustCompile(`\\(\\|[0-9])|\$`)

// rewrite replaces what a regular expression matches.
func rewrite(m *matcherv3.RegexMatchAndSubstitute, path string) (string, error) {
	re, err := regexp.Compile(m.Pattern.Regex)
	if err != nil {
		return "", err
	}
	with := reference.ReplaceAllStringFunc(m.Substitution, func(found string) string {
		switch found {
		case "$":
			return "$$"
		case `\\`:
			return `\`
		}
		return "${" + strings.TrimPrefix(found, `\`) + "}"
	})
	return re.ReplaceAllString(path, with), nil
}

// matched is the prefix that a route has matched in a path.
func (r *route) matched(path string) string {
	for _, prefix := range []string{r.Match.GetPathSeparatedPrefix(), r.Match.GetPrefix(), r.Match.GetPath()} {
		if prefix != "" {
			return prefix
		}
	}
	return path
}
