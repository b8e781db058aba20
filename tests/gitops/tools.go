package gitops

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// waitOfFlux returns the status that kstatus computes. Flux uses it with wait or healthChecks, and helm 4 with --wait.
func waitOfFlux(object *unstructured.Unstructured) (string, error) {
	result, err := status.Compute(object)
	if err != nil {
		return "", err
	}
	return result.Status.String(), nil
}

// expressionsOfFlux returns the status that Flux computes from healthCheckExprs.
func expressionsOfFlux(checks []kustomize.CustomHealthCheck, object *unstructured.Unstructured) (string, error) {
	for _, check := range checks {
		if check.APIVersion != object.GetAPIVersion() || check.Kind != object.GetKind() {
			continue
		}
		evaluator, err := cel.NewStatusEvaluator(&check.HealthCheckExpressions)
		if err != nil {
			return "", err
		}
		result, err := evaluator.Evaluate(context.Background(), object)
		if err != nil {
			return "", err
		}
		return result.Status.String(), nil
	}
	return "", fmt.Errorf("no expression for %s", object.GetAPIVersion())
}

// health is the result of a health check of Argo CD.
type health struct{ status, message string }

// scriptOfArgo runs a health script as Argo CD does without useOpenLibs: only with the base and table libraries, and for one second
// at most.
func scriptOfArgo(script string, object *unstructured.Unstructured) (health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		call := lua.P{Fn: state.NewFunction(open), Protect: true}
		if err := state.CallByParam(call, lua.LString(name)); err != nil {
			return health{}, err
		}
	}
	within, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	state.SetContext(within)
	state.SetGlobal("obj", luaValue(state, object.Object))
	if err := state.DoString(script); err != nil {
		return health{}, err
	}
	answer, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return health{}, fmt.Errorf("the script returned no table")
	}
	return health{text(answer, "status"), text(answer, "message")}, nil
}

func text(table *lua.LTable, field string) string {
	value := table.RawGetString(field)
	if value == lua.LNil {
		return ""
	}
	return value.String()
}

func luaValue(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case map[string]any:
		table := state.NewTable()
		for key, item := range value {
			table.RawSetString(key, luaValue(state, item))
		}
		return table
	case []any:
		table := state.NewTable()
		for _, item := range value {
			table.Append(luaValue(state, item))
		}
		return table
	case string:
		return lua.LString(value)
	case bool:
		return lua.LBool(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	}
	return lua.LNil
}

// counters are the numbers of the status that the built-in checks read.
type counters struct{ generation, observed, desired, updated, available int64 }

func countersOf(object *unstructured.Unstructured) counters {
	field := func(name string) int64 {
		number, _, _ := unstructured.NestedInt64(object.Object, "status", name)
		return number
	}
	return counters{
		generation: object.GetGeneration(),
		observed:   field("observedGeneration"),
		desired:    field("desiredNumberScheduled"),
		updated:    field("updatedNumberScheduled"),
		available:  field("numberAvailable"),
	}
}

func isOnDelete(object *unstructured.Unstructured) bool {
	strategy, _, _ := unstructured.NestedString(object.Object, "spec", "updateStrategy", "type")
	return strategy == "OnDelete"
}

// builtInOfArgo returns the health that Argo CD computes for a native DaemonSet without a script (gitops-engine, pkg/health).
func builtInOfArgo(object *unstructured.Unstructured) health {
	numbers := countersOf(object)
	waiting := fmt.Sprintf("Waiting for daemon set %q rollout to finish: ", object.GetName())
	switch {
	case numbers.generation > numbers.observed:
		return health{"Progressing", "Waiting for rollout to finish: observed daemon set generation less than desired generation"}
	case isOnDelete(object):
		return health{"Healthy", fmt.Sprintf("daemon set %d out of %d new pods have been updated", numbers.updated, numbers.desired)}
	case numbers.updated < numbers.desired:
		return health{"Progressing", fmt.Sprintf("%s%d out of %d new pods have been updated...", waiting, numbers.updated, numbers.desired)}
	case numbers.available < numbers.desired:
		return health{"Progressing", fmt.Sprintf("%s%d of %d updated pods are available...", waiting, numbers.available, numbers.desired)}
	}
	return health{"Healthy", ""}
}

// legacyWaitOfHelm returns the answer of helm 3 --wait and helm 4 --wait=legacy for a native DaemonSet with OnDelete
// (pkg/kube/ready.go).
func legacyWaitOfHelm(object *unstructured.Unstructured) string {
	if numbers := countersOf(object); numbers.observed != numbers.generation {
		return "waits"
	}
	return "ready"
}
